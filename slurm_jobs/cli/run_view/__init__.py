"""Views of a run on a terminal, and the same as JSON."""
