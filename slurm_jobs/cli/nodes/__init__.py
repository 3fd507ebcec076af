"""Verbs on nodes: doctor and probe."""
