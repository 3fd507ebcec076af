"""The shards from the shared file system to this node's own disk, each read there once a node.

`stage_in` takes the node's copy of a data set into use. The copy is keyed by the
data set's fingerprint, shared by all runs with that data set, and kept for later
ones; where room is wanted, copies that nobody uses are evicted, the least
recently used first. It is filled before training, or beside it: a shard that is
not here yet, or does not fit, is read from the shared file system
(`pipeline.data.shard_files`), and the order of samples does not know the difference.
"""

from pipeline.stage_in.stage import Staged, stage_in

__all__ = ["Staged", "stage_in"]
