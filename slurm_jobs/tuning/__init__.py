"""Tuning: try the knobs named by the report's findings one by one, and keep sure improvements.

`knobs` and `search` decide (PURE), `stage` runs on the compute node, `terminal` prints.
"""
