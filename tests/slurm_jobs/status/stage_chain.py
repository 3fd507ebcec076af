"""Stages that come after each other."""

from tests.slurm_jobs.runs import stage

PAIR = [stage("a"), stage("b", a="afterok")]
CHAIN = [stage("a"), stage("b", a="afterok"), stage("c", b="afterok"), stage("r", c="afterany")]
