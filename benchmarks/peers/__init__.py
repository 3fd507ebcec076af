"""Other readers of training data, one file each, all given the same bytes.

A module has the names of `Peer`. It imports its library inside functions, so that a missing library
skips the peer instead of raising an error. It may run in a Python of its own (see `python_of` in
`process`).
"""
