"""Layouts of stored images, by which each family of models gets its input."""
