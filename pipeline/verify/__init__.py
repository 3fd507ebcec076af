"""Whether a data set is what `consolidate` wrote; the far side of `slurm-jobs verify`."""

from pipeline.verify.dataset import run

__all__ = ["run"]
