"""Nodes of a cluster: the judgements of `doctor` and the records of `probe`."""
