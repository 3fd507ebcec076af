"""Trials of steps: the largest microbatch that fits, and the way of batching that is fastest."""
