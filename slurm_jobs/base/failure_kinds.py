"""Kinds of failures: what decides about retries and the next command, and what people read first.

A kind is decided where the cause is known: by the exception that a stage raises, by the process
that ended without one, or by the supervisor. The record of the attempt's end holds it. Texts are
for people, and nothing decides by them.
"""

from __future__ import annotations

import typing
from typing import Any, Literal

FailureKind = Literal[
    "wrong config",
    "wrong code",
    "wrong data",
    "missing package",
    "missing command",
    "full disk",
    "host memory",
    "device memory",
    "packing leak",
    "hang",
    "collective",
    "killed",
    "gone",
    "not started",
    "exit code",
    "exception",
]
"""Why a rank failed.

- `wrong config`: a value of the spec, or what its node offers, cannot work.
- `wrong code`: the stage's function is missing, misuses a name or a type, or returns what is no
  result.
- `wrong data`: the stage refused a file or its rows.
- `missing package`: the stage's Python cannot import it.
- `missing command`: a shell command is missing or cannot be executed.
- `full disk`, `host memory`, `device memory`: an exception of that kind.
- `packing leak`: a sample of a packed row depends on its neighbours.
- `hang`: no rank made progress for longer than the config allows.
- `collective`: a call of torch.distributed failed, mostly because another rank was gone.
- `killed`: a signal ended it.
- `gone`: it left no record, because its node or the process that watches it is gone.
- `not started`: its process could not be started.
- `exit code`: a command, or `sys.exit`, ended it with that code.
- `exception`: any other exception.
"""
KINDS: tuple[Any, ...] = typing.get_args(FailureKind)
_IN_ITS_REASON: frozenset[FailureKind] = frozenset({"exception", "exit code", "killed"})


def shown_kind(kind: FailureKind | None) -> FailureKind | None:
    """Return the kind where people see it; None for kinds that the failure's reason begins with."""
    return None if kind in _IN_ITS_REASON else kind
