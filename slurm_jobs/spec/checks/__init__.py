"""Checks of a stage's settings against other settings, and against existing files and folders."""
