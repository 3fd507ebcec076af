"""Verification that a data set is what `consolidate` wrote; node side of `slurm-jobs verify`."""

from pipeline.verify.dataset import run

__all__ = ["run"]
