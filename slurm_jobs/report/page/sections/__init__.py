"""Sections of the report's page, each in a file named after it. PURE."""
