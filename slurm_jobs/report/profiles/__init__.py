"""Profiles of steps: their traces, what these show, and what to change."""
