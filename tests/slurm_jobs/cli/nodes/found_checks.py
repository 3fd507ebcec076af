"""Checks of `doctor`, one of each standing."""

from __future__ import annotations

from slurm_jobs.nodes.doctor.doctor_check import Check

PROBLEM = Check(
    name="torch",
    standing="problem",
    told="torch 2.15 has no code for Tesla V100 (compute capability 7.0), but for sm_80",
    remedy="pip install 'torch<2.15' --index-url https://download.pytorch.org/whl/cu126",
    where="v1, v2",
)
WARNING = Check(name="limits", standing="warning", told="only 1024 open files", remedy="ulimit -n")
UNKNOWN = Check(name="quota", standing="unknown", told="there is no `quota` here")
OK = Check(name="requeue", standing="ok", told="jobs may be requeued")
