"""The parts of a model that `learn` knows by name, and what is wrong with names of no part."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

Part: TypeAlias = Literal["vision", "projector", "language", "heads", "adapters"]
PARTS: tuple[Part, ...] = get_args(Part)
"""A parameter belongs to one of them."""
ALL = "all"
"""Every part but the adapters."""
_WORD = re.compile(r"[A-Za-z0-9_-]+")
"""Names of parameters have a dot, and patterns of them a `*`, `?` or `[`."""


def learn_problem(learning: Sequence[Sequence[str] | None], *, has_adapters: bool) -> str | None:
    """What no model can learn, of a training or its phases; each None or empty is its default."""
    named = [name for names in learning for name in names or ()]
    for name in named:
        if _WORD.fullmatch(name) and name not in {*PARTS, ALL}:
            near = difflib.get_close_matches(name, [*PARTS, ALL], n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            return (
                f"learn has {name!r}, which is no part ({', '.join(PARTS)}, {ALL}) and no pattern "
                f"of parameter names (*.layers.1.*){hint}"
            )
    if "adapters" in named and not has_adapters:
        return (
            "learn names adapters, and there are none: give `adapters: {rank: 16}`, or leave "
            "`adapters` out of it"
        )
    is_used = any(names is None or "adapters" in names for names in learning)
    if has_adapters and not is_used:
        return (
            "adapters are given, and learn names them nowhere: add `adapters` to it, or leave "
            "adapters out"
        )
    return None
