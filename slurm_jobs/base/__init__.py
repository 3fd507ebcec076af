"""Errors, files, processes, text and units, which know nothing of runs and data.

Standard library only, because the Python of a compute node imports this before it checks anything.
"""
