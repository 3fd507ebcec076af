"""Overrides from the command line (`--set`), and edits of the text of a spec."""
