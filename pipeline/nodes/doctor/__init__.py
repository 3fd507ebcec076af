"""Facts about a node that `doctor` examines."""
