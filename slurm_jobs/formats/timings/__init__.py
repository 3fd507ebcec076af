"""Timing records of an attempt: steps, a node's load and the profiler's operators.

The names here are the import path of the documentation (docs/guides/training/records.md).
"""

from slurm_jobs.formats.timings.profiler_files import read_operators
from slurm_jobs.formats.timings.step_records import read_steps
from slurm_jobs.formats.timings.system_readings import read_system

__all__ = ["read_operators", "read_steps", "read_system"]
