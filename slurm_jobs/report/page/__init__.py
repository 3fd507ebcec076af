"""Sections of the page, each in a file named after it. PURE."""
