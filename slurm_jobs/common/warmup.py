"""Default number of steps that statistics leave out at the start of each attempt."""

WARMUP_STEPS = 5
"""Warm-up steps; later ones are rarely slower because of compilation, cold caches or allocator
growth."""
