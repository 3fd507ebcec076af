"""Output on a terminal: guarded text, tables, progress, and values in words."""
