"""Content of a report as plain values: made by `numbers` and `findings`, shown by renderers."""
