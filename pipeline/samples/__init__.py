"""What the samples of a data set say, and whether it can be learned; of `slurm-jobs samples`."""

from pipeline.samples.entry import run

__all__ = ["run"]
