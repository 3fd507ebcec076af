"""Training that a file of another tool describes, with its values by meaning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.starter.other_tools.tool_table import Meaning, Rule, Setting, Tool

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0", "none", ""})
UNSET = ("$", "`")
"""Characters of a value that only a shell could compute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignTraining:
    """Settings of another tool's training, in the order of the file."""

    file: Path
    tool: Tool
    settings: tuple[Setting, ...]

    def rule(self, setting: Setting) -> Rule | None:
        """Return the rule of a setting; None if the tool's table does not have it."""
        return self.tool.table.get(setting.table_key)

    def given(self, meaning: Meaning) -> list[Setting]:
        """Return the settings of a meaning that have a value, those of the file first."""
        return [
            setting
            for setting in self.settings
            if self.rule(setting) == meaning and has_value(setting)
        ]

    def setting(self, meaning: Meaning) -> Setting | None:
        """Return the setting that decides: the last one of the file, else the tool's default."""
        settings = self.given(meaning)
        of_file = [setting for setting in settings if not setting.is_default]
        if of_file:
            return of_file[-1]
        return settings[-1] if settings else None

    def is_in_file(self, meaning: Meaning) -> bool:
        """Return whether the file itself has a value of this meaning."""
        return any(not setting.is_default for setting in self.given(meaning))

    def text(self, meaning: Meaning) -> str | None:
        """Return a value as text."""
        setting = self.setting(meaning)
        return None if setting is None else str(setting.value).strip()

    def number(self, meaning: Meaning) -> float | None:
        """Return a value as a number (`1e-4` is text in YAML).

        Raises:
            InputError: it is none.
        """
        setting = self.setting(meaning)
        if setting is None:
            return None
        try:
            value = float(setting.value)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise self._unclear(setting, "a number")
        return value

    def count(self, meaning: Meaning) -> int | None:
        """Return a value as a whole number; raises InputError if it is none."""
        value = self.number(meaning)
        if value is None:
            return None
        if value != int(value):
            setting = self.setting(meaning)
            assert setting is not None
            raise self._unclear(setting, "a whole number")
        return int(value)

    def flag(self, meaning: Meaning) -> bool:
        """Return whether a value is true; `auto` counts, and nothing given does not.

        Raises:
            InputError: it is no truth value.
        """
        setting = self.setting(meaning)
        if setting is None:
            return False
        text = str(setting.value).strip().lower()
        if text in _TRUE or text == "auto":
            return True
        if text in _FALSE:
            return False
        raise self._unclear(setting, "true or false")

    def words(self, meaning: Meaning) -> list[str]:
        """Return a value as words: a list, or text with commas between them."""
        setting = self.setting(meaning)
        if setting is None:
            return []
        values = setting.value if isinstance(setting.value, list) else str(setting.value).split(",")
        return [str(value).strip() for value in values if str(value).strip()]

    def _unclear(self, setting: Setting, expected: str) -> InputError:
        return InputError(f"{self.file}: {setting.key} is {setting.value!r}, expected {expected}")


def is_computed(setting: Setting) -> bool:
    """Return whether only a shell could know the value."""
    return isinstance(setting.value, str) and any(mark in setting.value for mark in UNSET)


def has_value(setting: Setting) -> bool:
    """Return whether there is a value, and one that is known without a shell."""
    return setting.value not in (None, "", [], {}) and not is_computed(setting)
