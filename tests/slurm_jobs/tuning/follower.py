"""Rank 1 of a job as a process of its own: `follower.py CONTEXT_JSON STUB`."""

import sys
from pathlib import Path

from slurm_jobs.common.context import read_context
from slurm_jobs.tuning import crew

crew._start_script = lambda: Path(sys.argv[2])
crew.follow_lead(read_context(Path(sys.argv[1])))
