"""Why torch could not save or load a checkpoint, in the system's own words.

torch raises one `CheckpointException` on all ranks, which is no `Exception`. It
has the errors of those that failed as pickles, without what caused them.
"""

from __future__ import annotations

from torch.distributed.checkpoint.api import CheckpointException


def explain(error: CheckpointException | OSError) -> str:
    """`rank 1: [Errno 28] No space left on device`, for each rank that failed."""
    if not isinstance(error, CheckpointException):
        return str(error)
    failures = sorted(error.failures.items())
    told = (f"rank {rank}: {str(failure) or repr(failure)}" for rank, (failure, _) in failures)
    return "; ".join(told) or "torch does not say why"
