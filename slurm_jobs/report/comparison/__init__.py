"""Comparison of runs: two arms of settings, or numbers of GPUs."""
