"""Format of a data set on disk: its description, its index, and the samples in its shards."""
