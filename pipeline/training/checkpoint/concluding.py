"""Last checkpoint of a training that another one continues from."""

from __future__ import annotations

from pipeline.training.checkpoint import files
from pipeline.training.checkpoint.info import DAMAGE, read_info, record_hash
from pipeline.training.checkpoint.state import Checkpoints
from slurm_jobs.common.errors import StageError


def conclude(checkpoints: Checkpoints, step: int) -> str:
    """Remove all checkpoints but that after `step`; return its `record_hash` on every rank.

    A collective.

    Raises:
        StageError: on every rank: it cannot be read, or the others cannot be removed.
    """
    problem, found = "", ""
    if checkpoints.ranks.rank == 0:
        folder = files.checkpoint_dir(checkpoints.root, step)
        try:
            found = record_hash(folder)
            files.keep_newest(checkpoints.root, 1, read_info(folder))
        except (*DAMAGE, OSError, StageError) as error:
            problem = f"checkpoint {folder}, which the next phase follows: {error}"
    problem, found = checkpoints.ranks.from_main((problem, found))
    if problem:
        raise StageError(problem)
    return found
