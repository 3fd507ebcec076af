"""Rank 1 of a job as a process of its own: `follower.py CONTEXT_JSON STUB`."""

import sys
from pathlib import Path

from slurm_jobs.formats.records.task_context import read_context
from slurm_jobs.tuning import job_trials

job_trials._start_script = lambda: Path(sys.argv[2])
job_trials.run_parts(read_context(Path(sys.argv[1])))
