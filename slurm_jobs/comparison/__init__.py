"""Runs beside runs: whether one is faster, and how speed grows with GPUs.

`measure` reads what a run's training did; all else is PURE. A claim rests on the spread between
runs, never on that between the steps of one.
"""
