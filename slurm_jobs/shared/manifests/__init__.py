"""Rows of manifests: parsers of each format, and the meaning of a row's values.

All formats produce the value type in `rows`. `values` and `turns` interpret the values of a row,
independent of the format. One module for each format finds the bounds of rows. All of it needs only
the standard library, so that the login node reads rows as a job does.
"""
