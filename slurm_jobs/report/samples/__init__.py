"""Samples of a data set, shown as a page and in the terminal."""
