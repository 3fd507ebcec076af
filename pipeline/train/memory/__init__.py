"""Memory of a training: the need of each rank, the memory of cards and nodes, and remedies."""
