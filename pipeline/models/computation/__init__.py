"""Computation of a built model: compiled and recomputed layers, precision, and work."""
