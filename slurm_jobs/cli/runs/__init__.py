"""Verbs on runs: run, runs, note, status, watch, resume, cancel, clean, debug."""
