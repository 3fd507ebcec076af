"""Removal of what runs do not need any more."""
