"""Attempts of a run: their ends, their table, and the time that they lost. PURE."""
