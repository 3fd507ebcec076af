"""Reads what a run has written down, for a report; decides nothing."""
