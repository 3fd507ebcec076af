"""Rows of manifests: how each format is parsed, and what the values of a row mean.

`rows` is the value that all formats end in. `values` and `turns` give the values of a row their
meaning, whatever the format. A module a format finds where rows begin and end. All of it needs the
standard library only, so that the login node reads rows as a job does.
"""
