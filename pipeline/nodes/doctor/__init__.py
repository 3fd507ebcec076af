"""What `doctor` examines on a node."""
