"""Samples of a data set for people: in the terminal and as a page.

`pipeline.samples` reads, decodes and audits them, in the Python of the stage.
"""
