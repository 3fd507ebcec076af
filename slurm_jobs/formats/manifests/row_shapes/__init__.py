"""Rows as other tools write them, rewritten into those that `values` reads.

A shape has a file of its own, named after it, with the tool whose documentation gives its meaning.
`shape_table` lists the shapes.
"""
