"""Comparison of runs: whether one is faster, and how speed grows with GPUs.

`measure` reads the records of a run's training; all else is PURE. A claim rests on the spread
between runs, never on that between the steps of one.
"""
