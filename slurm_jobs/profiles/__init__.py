"""What PyTorch's profiler recorded of some steps, read on the login node.

`trace` reads its Chrome trace; `occupancy` is PURE and says what computed, communicated, copied and
stood idle; `findings` what to make of it; `terminal` shows it.
"""
