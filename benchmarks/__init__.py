"""Scripts that measure, each a table against named peers in the same run; `make bench` runs all."""
