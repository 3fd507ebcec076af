"""Hints for a wrong key or value: what other tools call it, and how to write it here."""
