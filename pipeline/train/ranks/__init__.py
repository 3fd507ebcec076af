"""Meeting of the ranks of a training: joining, exchanging values, waiting for each other."""
