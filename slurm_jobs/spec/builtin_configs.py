"""Config dataclasses of the built-in stages. PURE."""

from __future__ import annotations

import dataclasses
import importlib
import types
import typing
from functools import cache
from typing import Any

from slurm_jobs.spec.value_types import BUILTIN_STAGES

_OWN_MODULES = ("download", "train")
"""Stages whose config has a module of its own."""


@cache
def config_class(builtin: str) -> type[Any]:
    """Return the config dataclass of a built-in stage, ready for validation.

    Only this one is imported, so that `check` stays fast.
    """
    assert builtin in BUILTIN_STAGES
    name = builtin if builtin in _OWN_MODULES else "stages"
    module = importlib.import_module(f"slurm_jobs.formats.configs.{name}")
    config: type[Any] = getattr(module, f"{builtin.capitalize()}Config")
    _forbid_unknown_keys(config)
    return config


def _forbid_unknown_keys(cls: Any) -> None:
    """Set pydantic's options on a plain dataclass and those inside it, without an import there."""
    cls.__pydantic_config__ = {"extra": "forbid"}
    for hint in typing.get_type_hints(cls).values():
        is_union = typing.get_origin(hint) in {typing.Union, types.UnionType}
        for inner in typing.get_args(hint) if is_union else (hint,):
            if dataclasses.is_dataclass(inner):
                _forbid_unknown_keys(inner)
