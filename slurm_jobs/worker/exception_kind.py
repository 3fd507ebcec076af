"""Kind of the exception that ended a rank, from its class and from where it was raised."""

from __future__ import annotations

import errno
import sys

from slurm_jobs.base.errors import StageError
from slurm_jobs.base.failure_kinds import KINDS, FailureKind
from slurm_jobs.formats.records.named_resumes import valid_ways

_OF_WRONG_CODE = (SyntaxError, NameError, AttributeError, ImportError, TypeError)
_OF_FULL_DISKS = frozenset({errno.ENOSPC, errno.EDQUOT})
_COLLECTIVES = frozenset(
    {
        "torch.distributed.distributed_c10d",
        "torch.distributed.c10d_logger",
        "torch.distributed._functional_collectives",
    }
)
"""Modules whose functions call the other ranks."""


_BEYOND_THE_CODE = frozenset({"full disk", "host memory", "device memory", "collective"})
"""Kinds that an exception keeps if another one is raised from it: code that catches a TypeError and
raises an error of its own has made something else of it."""


def kind_of(error: BaseException) -> FailureKind:
    """Return the kind of an exception."""
    kind = _kind_by_itself(error)
    if kind != "exception":
        return kind
    seen: set[int] = set()
    cause = error.__cause__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        kind = _kind_by_itself(cause)
        if kind in _BEYOND_THE_CODE:
            return kind
        cause = cause.__cause__
    return "exception"


def resumes_of(error: BaseException) -> list[list[str]]:
    """Return the resumes that a stage's error names, as far as a record can hold them."""
    if not isinstance(error, StageError):
        return []
    return [list(way) for way in valid_ways(error.resumes)]


def _kind_by_itself(error: BaseException) -> FailureKind:
    if isinstance(error, StageError):
        return error.kind if error.kind in KINDS else "exception"
    if isinstance(error, MemoryError):
        return "host memory"
    if isinstance(error, OSError) and error.errno in _OF_FULL_DISKS:
        return "full disk"
    if isinstance(error, getattr(sys.modules.get("torch"), "OutOfMemoryError", ())):
        return "device memory"
    if _is_of_collective(error):
        return "collective"
    if isinstance(error, ModuleNotFoundError):
        return "missing package"
    if isinstance(error, _OF_WRONG_CODE):
        return "wrong code"
    return "exception"


def _is_of_collective(error: BaseException) -> bool:
    """Check whether a call of torch.distributed raised it.

    Gloo raises a plain RuntimeError if another rank is gone, and also if the call is wrong.
    """
    traceback = error.__traceback__
    is_plain = isinstance(error, RuntimeError) and not isinstance(error, NotImplementedError)
    if not is_plain or traceback is None:
        return False
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_globals.get("__name__") in _COLLECTIVES
