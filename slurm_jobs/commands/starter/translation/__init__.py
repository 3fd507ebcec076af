"""Translation of another tool's settings to keys of a spec."""
