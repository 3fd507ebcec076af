"""Rows of manifests: parsers of each format, and the meaning of a row's values.

`messages` has the value types, `keys` the meaning of names, and `values` interprets a row of any
format. `row_shapes` rewrites the rows of other tools for it. `text` finds the rows of CSV and JSON.
`tables` needs pyarrow; the others need only the standard library, so that the login node reads rows
as a job does.
"""
