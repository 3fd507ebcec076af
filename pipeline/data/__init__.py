"""Shards to the batches of one rank: exact order, exact position, exact resume.

`open_dataset` reads the index, `order` decides which sample comes when, and `BatchReader`
assembles batches ahead of time. `preprocess` writes the samples; `stage_in` copies them to a
node.
"""
