"""Files that `init` writes: a first spec and a cluster profile."""
