"""Readers of a run's records for a report; no decisions."""
