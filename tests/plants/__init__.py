"""Delays that are planted in a real training, so that what it records can be held against them."""
