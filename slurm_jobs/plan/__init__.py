"""Plan of a run: (spec, profile, complete slices, active slices) -> the jobs that are needed."""
