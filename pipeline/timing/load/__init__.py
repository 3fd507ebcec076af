"""Sources of the readings of a node's load."""
