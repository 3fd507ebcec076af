"""Last checkpoint of a phase, from which the next phase continues."""

from __future__ import annotations

from pipeline.train.checkpoints import checkpoint_folders
from pipeline.train.checkpoints.checkpoint_record import DAMAGE, read_info, record_hash
from pipeline.train.checkpoints.training_state import Checkpoints
from slurm_jobs.base.errors import StageError


def conclude(checkpoints: Checkpoints, step: int) -> str:
    """Remove all checkpoints but that after `step`; return its `record_hash` on every rank.

    A collective.

    Raises:
        StageError: on every rank: it cannot be read, or the others cannot be removed.
    """
    problem, stored = "", ""
    if checkpoints.ranks.rank == 0:
        folder = checkpoint_folders.checkpoint_dir(checkpoints.root, step)
        try:
            info = read_info(folder)
            stored = record_hash(info)
            checkpoint_folders.keep_newest(checkpoints.root, 1, info)
        except (*DAMAGE, OSError, StageError) as error:
            problem = f"checkpoint {folder}, which the next phase follows: {error}"
    problem, stored = checkpoints.ranks.from_main((problem, stored))
    if problem:
        raise StageError(problem)
    return stored
