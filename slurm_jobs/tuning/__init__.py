"""Tries what the report's findings name, one knob at a time, and keeps what is surely faster.

`knobs` and `course` decide (PURE), `stage` acts on the compute node, `terminal` shows.
"""
