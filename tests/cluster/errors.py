"""What the test cluster raises. It belongs to the tests, so it stays out of the product's error tree."""


class ClusterError(Exception):
    """The test cluster did not do what it was told; the message carries the log tails that tell why."""


class ClusterUnavailableError(ClusterError):
    """This machine cannot have the cluster (no root, no Debian, packages that will not install)."""
