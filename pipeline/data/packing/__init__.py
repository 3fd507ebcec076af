"""Samples in packs: pure functions on the lengths of an index, and the file of the result.

`epoch_packs.pack_order` packs an epoch by one of `algorithms.STRATEGIES`, `pack_files` stores the
packs, `work_model` computes their cost and `deal` gives every rank an equal amount of it. The
reader reads the samples of a pack and passes segments to the model.
"""
