"""Manifests: text files and tables, read in slices and verified."""
