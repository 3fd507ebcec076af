"""Stored outputs of the command line, which `python -m tests.golden.regenerate` writes again."""
