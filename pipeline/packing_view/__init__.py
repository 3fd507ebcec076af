"""Cost of each way of batching on a data set; node side of `slurm-jobs packing`.

`arrangements` makes the plans that a training would use and counts their padding, `timing` runs
a model's steps on them, `picture` draws them. Nothing is stored in the data set.
"""

from pipeline.packing_view.view import run

__all__ = ["run"]
