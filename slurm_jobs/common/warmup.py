"""How many steps statistics leave out at the start of each attempt, where nothing else is said."""

WARMUP_STEPS = 5
"""Later ones are rarely slower for compilation, cold caches or a growing allocator."""
