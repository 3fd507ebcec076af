"""Whether the libraries that a config needs, and other configs do not, can be loaded on this node.

They are loaded where a model gets its adapters or an optimizer is made: after the data set was
staged and the weights were read, if nobody looks before.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from pipeline.training.phases import Phase


def library_problem(phases: Sequence[Phase]) -> str | None:
    """Why one cannot be loaded, who asks for it, and the remedy; loads those that are needed."""
    for phase in phases:
        for library, key, remedy in _needs(phase):
            try:
                importlib.import_module(library)
            except Exception as error:  # noqa: BLE001 - a library that is half there raises anything
                return (
                    f"{key} needs {library}, which cannot be loaded here "
                    f"({type(error).__name__}: {error}): {sys.executable} -m pip install "
                    f"--force-reinstall {library}; or {remedy}"
                )
    return None


def _needs(phase: Phase) -> list[tuple[str, str, str]]:
    """Library, the key that asks for it, and what to do without it."""
    config, needs = phase.config, list[tuple[str, str, str]]()
    if config.adapters is not None:
        needs.append(("peft", "adapters", "leave adapters out"))
    if config.quantize is not None:
        needs.append(("bitsandbytes", "quantize", "leave quantize out"))
    if config.optimizer.kind != "adamw":
        key = phase.key("optimizer.kind")
        needs.append(("bitsandbytes", f"{key}: {config.optimizer.kind}", f"set {key}: adamw"))
    return needs
