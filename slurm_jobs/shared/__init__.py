"""Code of both sides: errors, atomic files, records, timings, stage configs.

Standard library only (NumPy to read timings), because the compute node's Python imports this before
it checks anything else.
"""
