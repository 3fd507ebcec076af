"""Benchmarks against named peers, measured in the same run; `make bench` runs all."""
