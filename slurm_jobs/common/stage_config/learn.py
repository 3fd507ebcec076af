"""The parts of a model that `learn` knows by name, and what is wrong with names of no part."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import Literal, TypeAlias, get_args

Part: TypeAlias = Literal["vision", "projector", "language", "heads", "adapters"]
PARTS: tuple[Part, ...] = get_args(Part)
"""A parameter belongs to one of them."""
ALL = "all"
"""Every part but the adapters."""
_WORD = re.compile(r"[A-Za-z0-9_-]+")
"""Names of parameters have a dot, and patterns of them a `*`, `?` or `[`."""


def learn_problem(names: Collection[str], *, has_adapters: bool) -> str | None:
    """What no model can learn, of the names in `learn`."""
    for name in names:
        if _WORD.fullmatch(name) and name not in {*PARTS, ALL}:
            near = difflib.get_close_matches(name, [*PARTS, ALL], n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            return (
                f"learn has {name!r}, which is no part ({', '.join(PARTS)}, {ALL}) and no pattern "
                f"of parameter names (*.layers.1.*){hint}"
            )
    if "adapters" in names and not has_adapters:
        return (
            "learn names adapters, and there are none: give `adapters: {rank: 16}`, or leave "
            "`adapters` out of it"
        )
    return None
