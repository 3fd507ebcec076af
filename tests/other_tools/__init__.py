"""Data in the formats of other tools, and what is learned of them here and there."""
