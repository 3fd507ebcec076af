"""What both sides share: errors, atomic files, records, timings, stage configs.

Standard library only (NumPy where timings are read back), because a compute
node's Python imports it before anything else is known to work.
"""
