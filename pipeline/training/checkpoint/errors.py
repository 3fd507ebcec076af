"""Why torch could not save or load a checkpoint, in the system's own words.

torch raises one `CheckpointException` on all ranks, which is no `Exception`. It
has the errors of those that failed as pickles, without what caused them.
"""

from __future__ import annotations

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future


class TellingWriter(dcp.FileSystemWriter):
    """Fails with the system's error where torch has put its own in the way.

    When a disk fills up between two tensors, torch's archive complains of a wrong position; that
    there is no space left stands only in the error before it.
    """

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's file.

        Raises:
            OSError: the file system failed.
        """
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


def explain(error: CheckpointException | OSError) -> str:
    """`rank 1: [Errno 28] No space left on device`, for each rank that failed."""
    if not isinstance(error, CheckpointException):
        return str(error)
    failures = sorted(error.failures.items())
    told = (f"rank {rank}: {str(failure) or repr(failure)}" for rank, (failure, _) in failures)
    return "; ".join(told) or "torch does not say why"
