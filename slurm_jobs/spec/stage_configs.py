"""Config dataclasses of the built-in stages. PURE."""

from __future__ import annotations

import dataclasses
import importlib
import types
import typing
from functools import cache
from typing import Any

from slurm_jobs.spec.value_types import BUILTIN_STAGES

_PYDANTIC_CONFIG = {"extra": "forbid", "use_attribute_docstrings": True}


@cache
def config_class(builtin: str) -> type[Any]:
    """Return the config dataclass of a built-in stage, ready for validation.

    Only this one is imported, so that `check` stays fast.
    """
    assert builtin in BUILTIN_STAGES
    module = importlib.import_module(f"slurm_jobs.common.stage_config.{builtin}")
    found: type[Any] = getattr(module, f"{builtin.capitalize()}Config")
    _forbid_unknown_keys(found)
    return found


def _forbid_unknown_keys(cls: Any) -> None:
    """Set pydantic's options on a plain dataclass and those inside it, without an import there."""
    cls.__pydantic_config__ = _PYDANTIC_CONFIG
    for hint in typing.get_type_hints(cls).values():
        inner = typing.get_args(hint) if _is_union(hint) else (hint,)
        for candidate in inner:
            if dataclasses.is_dataclass(candidate):
                _forbid_unknown_keys(candidate)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in {typing.Union, types.UnionType}
