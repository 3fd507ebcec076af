"""Data of a training: data sets, their staging on every rank, and the batches made of them."""
