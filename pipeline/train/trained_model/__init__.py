"""Model in training: built on every rank, with the parameters that learn, sharded and verified."""
