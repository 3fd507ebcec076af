"""What a run folder holds: paths, ledger, orders of jobs, records."""
