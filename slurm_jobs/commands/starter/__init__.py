"""Inspection of a user's data for the spec that `init` writes."""
