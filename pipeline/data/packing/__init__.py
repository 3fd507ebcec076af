"""Samples in packs: pure functions on the lengths of an index, and the file of the result.

`plan.pack_order` packs an epoch by one of `strategies.STRATEGIES`, `files` stores the packs,
`work` computes their cost and `deal` gives every rank an equal amount of it. The reader reads
the samples of a pack and passes segments to the model.
"""
