"""Names in `learn` for parts of a model, and checks of these names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from typing import Literal, TypeAlias, get_args

Part: TypeAlias = Literal["vision", "projector", "language", "heads", "adapters"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Parts of a model; each parameter belongs to one of them."""
ALL = "all"
"""Name of all parts except the adapters."""
_WORD = re.compile(r"[A-Za-z0-9_-]+")
"""Pattern of a single word: names of parameters have a dot, and patterns of them `*`, `?` or `[`.
"""


_OWN_NAMES = ("vision", "projector", "language", "heads")
"""Prefixes of the names of all parameters of a `small_vlm`."""
_MEANT = {"vis": "vision", "proj": "projector", "connector": "projector", "merger": "projector"}
"""Part that is meant by a family's names with these letters."""


def learn_problems(
    names: Collection[str], *, has_adapters: bool, has_heads: bool, is_small_vlm: bool = False
) -> Iterator[str]:
    """Yield problems of names in `learn` that no model can learn, or no `small_vlm`."""
    for name in names:
        if _WORD.fullmatch(name) and name not in {*PARTS, ALL}:
            near = difflib.get_close_matches(name, [*PARTS, ALL], n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            yield (
                f"learn has {name!r}, which is no part ({', '.join(PARTS)}, {ALL}) and no pattern "
                f"of parameter names (*.layers.1.*){hint}"
            )
        first, dot, _ = name.partition(".")
        if is_small_vlm and dot and _WORD.fullmatch(first) and first not in _OWN_NAMES:
            meant = next((part for letters, part in _MEANT.items() if letters in name), "language")
            yield (
                f"learn has {name!r}, and model.type is small_vlm, whose parameters have names "
                f"that begin with {', '.join(f'{own}.' for own in _OWN_NAMES[:-1])} or "
                f"{_OWN_NAMES[-1]}.: write for example `{meant}.*`"
            )
    if "adapters" in names and not has_adapters:
        yield (
            "learn names adapters, and there are none: give `adapters: {rank: 16}`, or leave "
            "`adapters` out of it"
        )
    if "heads" in names and not has_heads:
        yield (
            "learn names heads, and there are none: give `levels` of which one has `head: "
            "classes`, or leave `heads` out of it"
        )
