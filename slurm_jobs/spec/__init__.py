"""Specs: their keys, their validation, and errors with positions in the file. PURE."""
