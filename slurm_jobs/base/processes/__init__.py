"""Processes: signals, child processes that end with their parent, and programs run for facts."""
