"""ms-swift's `conversation`: turns, or pairs of a `human` and an `assistant`.

Its documentation writes ShareGPT's rows so, and `MessagesPreprocessor` reads either form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_jobs.formats.manifests.keys import Meaning
from slurm_jobs.formats.manifests.row_shapes.row_values import RowValues
from slurm_jobs.formats.manifests.turns import turns_of

KEYS: Mapping[str, Meaning] = {"conversation": "turns"}

_PAIR_KEYS = {"human": "user", "gpt": "assistant", "bot": "assistant"}
"""Keys of a pair, and what `texts` calls them."""


def rewrite(row: RowValues) -> None:
    """Take the turns of a row that has no answer elsewhere, with pairs as `texts` has them.

    Raises:
        BadRowError: the key holds text that begins like a list, but is no JSON.
    """
    key = row.other_key("conversation")
    if key is None or row.has_own_names or row.filled("text"):
        return
    value = row.others[key]
    is_json = isinstance(value, str) and value.startswith("[")
    if isinstance(value, list) or is_json:
        turns = [_renamed(turn) for turn in turns_of(value)]
        del row.others[key]
        row.held["turns"] = {key: turns}


def _renamed(turn: Any) -> Any:
    if not isinstance(turn, Mapping):
        return turn
    renamed = dict(turn)
    for key, name in _PAIR_KEYS.items():
        if key in turn and name not in turn:
            renamed[name] = renamed.pop(key)
    return renamed
