"""Kind of the exception that ended a rank, from its class and from where it was raised."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator

from slurm_jobs.shared.errors import StageError
from slurm_jobs.shared.failure_kinds import FailureKind

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
    for cause in _causes(error):
        kind = _kind_by_itself(cause)
        if kind in _BEYOND_THE_CODE:
            return kind
    return "exception"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause = error.__cause__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__


def _kind_by_itself(error: BaseException) -> FailureKind:
    if isinstance(error, StageError):
        return error.kind
    if isinstance(error, MemoryError):
        return "host memory"
    if isinstance(error, OSError) and error.errno in _OF_FULL_DISKS:
        return "full disk"
    if _is_of_device_memory(error):
        return "device memory"
    if _is_of_collective(error):
        return "collective"
    if isinstance(error, ModuleNotFoundError):
        return "missing package"
    if isinstance(error, _OF_WRONG_CODE):
        return "wrong code"
    return "exception"


def _is_of_device_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    refused = getattr(torch, "OutOfMemoryError", None)
    return refused is not None and isinstance(error, refused)


def _is_of_collective(error: BaseException) -> bool:
    """Check whether a call of torch.distributed failed below its Python code.

    Gloo raises a plain RuntimeError if another rank is gone; what the Python code itself refuses,
    such as a missing process group, is of another class.
    """
    traceback = error.__traceback__
    if not isinstance(error, RuntimeError) or traceback is None:
        return False
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_globals.get("__name__") in _COLLECTIVES
