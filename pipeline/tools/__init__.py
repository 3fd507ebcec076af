"""Functions behind `verify`, `samples` and `packing`, which need a stage's Python."""
