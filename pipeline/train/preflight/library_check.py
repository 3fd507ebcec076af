"""Check of the libraries that a training's config needs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from pipeline.train.phase import Phase


def library_problem(phases: Sequence[Phase]) -> str | None:
    """Return why a library cannot be loaded, which key needs it, and the remedy; loads them.

    Without this check they would be loaded when a model gets its adapters or an optimizer is
    created: after the data set was staged and the weights were read.
    """
    for phase in phases:
        config, kind = phase.config, phase.key("optimizer.kind")
        optimizer = config.optimizer.kind
        for is_needed, library, key, remedy in (
            (config.adapters is not None, "peft", "adapters", "leave adapters out"),
            (config.quantize is not None, "bitsandbytes", "quantize", "leave quantize out"),
            (optimizer != "adamw", "bitsandbytes", f"{kind}: {optimizer}", f"set {kind}: adamw"),
        ):
            try:
                if is_needed:
                    importlib.import_module(library)
            except Exception as error:  # noqa: BLE001 - a library that is half there raises anything
                return (
                    f"{key} needs {library}, which cannot be loaded here "
                    f"({type(error).__name__}: {error}): {sys.executable} -m pip install "
                    f"--force-reinstall {library}; or {remedy}"
                )
    return None
