"""Contents of a run folder: paths, ledger, orders of jobs, records."""
