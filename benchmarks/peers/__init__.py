"""Other readers of training data, one file each, all given the same bytes.

A module has the names of `Peer`. It imports what it measures inside its
functions, so that a peer that is not installed is a reason and no error, and it
may run in a Python of its own (`ENVIRONMENT`).
"""
