"""Check that the libraries that only some configs need can be loaded on this node.

Without this check they would be loaded when a model gets its adapters or an optimizer is
created: after the data set was staged and the weights were read.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from pipeline.training.phases import Phase


def library_problem(phases: Sequence[Phase]) -> str | None:
    """Return why a library cannot be loaded, which key needs it, and the remedy; loads them."""
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
    """Return the library, the key that needs it, and the alternative."""
    config, needs = phase.config, list[tuple[str, str, str]]()
    if config.adapters is not None:
        needs.append(("peft", "adapters", "leave adapters out"))
    if config.quantize is not None:
        needs.append(("bitsandbytes", "quantize", "leave quantize out"))
    if config.optimizer.kind != "adamw":
        key = phase.key("optimizer.kind")
        needs.append(("bitsandbytes", f"{key}: {config.optimizer.kind}", f"set {key}: adamw"))
    return needs
