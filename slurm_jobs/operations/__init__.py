"""Commands as functions, one file each, for the command line and for notebooks."""
