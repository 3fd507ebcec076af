"""What each way of batching costs on a data set; the far side of `slurm-jobs packing`.

`arrangements` makes the plans that a training would read by and counts what they pad, `timing`
lets a model take steps of them, `picture` draws them. Nothing is kept in the data set.
"""

from pipeline.packing_view.view import run

__all__ = ["run"]
