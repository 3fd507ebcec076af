"""Profiles that PyTorch's profiler recorded of some steps, read on the login node.

`trace` reads its Chrome trace. `occupancy` (PURE) computes times of computation, communication,
copies and idleness, `findings` the recommendations; `terminal` prints them.
"""
