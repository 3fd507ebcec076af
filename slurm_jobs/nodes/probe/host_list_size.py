"""Number of nodes in a Slurm host list. PURE."""

from __future__ import annotations

import re

_GROUP = re.compile(r"\[([^\[\]]*)\]")
_IN_BRACKETS = re.compile(r"\[[^\]]*\]?")
_ITEM = re.compile(r"[A-Za-z0-9._-]+(\[[0-9,-]+\][A-Za-z0-9._-]*)*")


def num_named(text: str) -> int:
    """Return the number of names: 6 for `gpu[01-04,7],fat1`.

    Raises:
        ValueError: it is not a host list.
    """
    total = 0
    joined = _IN_BRACKETS.sub(lambda group: group[0].replace(",", "\0"), text)
    for each in joined.split(","):
        item = each.replace("\0", ",").strip()
        if not _ITEM.fullmatch(item):
            message = f"`{item}` is neither the name of a node nor a list such as gpu[01-04,7]"
            raise ValueError(message)
        num = 1
        for group in _GROUP.findall(item):
            num *= sum(map(_num_in, group.split(",")))
        total += num
    return total


def _num_in(part: str) -> int:
    first, dash, last = part.partition("-")
    if not first.isdecimal() or (dash and (not last.isdecimal() or int(last) < int(first))):
        message = f"`{part}` is not a range of numbers, such as 01-04"
        raise ValueError(message)
    return int(last) - int(first) + 1 if dash else 1
