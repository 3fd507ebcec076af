"""One stage for each combination of a `matrix:`."""
