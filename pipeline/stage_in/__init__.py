"""Copies shards from the shared file system to this node's local disk, once per node.

`stage_in` takes the node's copy of a data set into use. The copy is keyed by the data set's
fingerprint, shared by all runs with that data set, and kept for later ones. If room is needed,
unused copies are evicted, the least recently used first. It is filled before or during
training. A shard that is not copied yet, or does not fit, is read from the shared file system
(`pipeline.data.shard_reading.shard_files`); the order of samples does not change.
"""
