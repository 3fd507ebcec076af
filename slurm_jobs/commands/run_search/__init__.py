"""Search of runs: the folders of runs, and the run that a user means."""
