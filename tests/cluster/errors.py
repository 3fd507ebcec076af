"""What the test cluster raises; it belongs to the tests, not to the product's error tree."""


class ClusterError(Exception):
    """The test cluster did not do what it was told; the message says why."""


class ClusterUnavailableError(ClusterError):
    """This machine cannot have the cluster (no root, no Debian, packages that will not install)."""


class NotAClusterError(ClusterError):
    """A folder that is no cluster's holds something."""
