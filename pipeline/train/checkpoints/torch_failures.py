"""Reasons why torch could not save or load a checkpoint, in the system's words.

torch raises one `CheckpointException` on all ranks, which is not an `Exception`. It contains
the pickled errors of the failed ranks, without their causes.
"""

from __future__ import annotations

from torch.distributed.checkpoint.api import CheckpointException


def explain(error: CheckpointException | OSError) -> str:
    """Return `rank 1: [Errno 28] No space left on device`, for each rank that failed."""
    if not isinstance(error, CheckpointException):
        return str(error)
    failures = sorted(error.failures.items())
    texts = (f"rank {rank}: {str(failure) or repr(failure)}" for rank, (failure, _) in failures)
    return "; ".join(texts) or "torch does not state a reason"
