"""Checks that a strategy did what it was asked for, and the log sentence about the result."""
