"""Training files of other tools: how they are read, and what their keys mean."""
