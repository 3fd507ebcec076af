"""Tuning: try the knobs named by the report's findings one by one, and keep sure improvements."""
