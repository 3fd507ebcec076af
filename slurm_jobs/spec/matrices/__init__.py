"""Stages with a `matrix:`, expanded to one stage for each combination."""
