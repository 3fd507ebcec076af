"""A batch of one rank, its memory, its targets and its work."""
