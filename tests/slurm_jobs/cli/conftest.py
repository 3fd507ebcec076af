"""Fixtures of all verbs."""

from tests.slurm_jobs.cli.command import command

__all__ = ["command"]
