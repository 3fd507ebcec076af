"""Contents of a data set's samples, and checks of them; for `slurm-jobs samples`."""

from pipeline.samples.entry import run

__all__ = ["run"]
