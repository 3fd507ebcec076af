"""Status of a run: what its records and the scheduler say of each slice, stage and the run."""
