"""What knows nothing of runs and data: errors, files, processes, text, units.

Standard library only, because the Python of a compute node imports this before it checks anything.
"""
