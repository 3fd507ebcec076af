"""Measurements of nodes by `probe`: read, compared between nodes, and shown."""
