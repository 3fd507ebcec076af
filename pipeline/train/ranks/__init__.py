"""How the ranks of a training join, exchange values and wait for each other."""
