"""Values of a row by their meaning, which a shape may move and replace."""

from __future__ import annotations

from typing import Any

from slurm_jobs.formats.configs.stages import Columns
from slurm_jobs.formats.manifests.keys import Meaning, is_empty, normal, says_nothing
from slurm_jobs.formats.manifests.row_notes import RowNote


class RowValues:
    """Values of one row by their meaning, each with the name of its key, for messages."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        """Columns that the config names."""
        self.held: dict[Meaning, dict[str, Any]] = {}
        """Values of the keys that are read, by meaning and key."""
        self.others: dict[str, Any] = {}
        """Values of the other keys, without those of `columns.ignore`."""
        self.ignored: list[str] = []
        """Keys of turns, answers and images that are not read, with the path to them."""
        self.notes: list[RowNote] = []
        self._other_keys: dict[str, str] = {}
        """The other keys, by their name as it is compared."""

    def add_other(self, key: str, value: Any) -> None:
        """Add a key without a meaning."""
        self.others[key] = value
        self._other_keys[normal(key)] = key

    def other_key(self, name: str) -> str | None:
        """Return the other key of this name; None if there is none, or its value says nothing."""
        key = self._other_keys.get(name)
        if key is None or says_nothing(self.others.get(key)):
            return None
        return key

    @property
    def has_own_names(self) -> bool:
        """Check whether the config names the question, the answer or the turns."""
        columns = self.columns
        return any(name is not None for name in (columns.prompt, columns.text, columns.messages))

    def filled(self, meaning: Meaning) -> dict[str, Any]:
        """Return the keys of a meaning that are not empty, and their values."""
        values = self.held.get(meaning, {})
        return {key: value for key, value in values.items() if not is_empty(value)}
