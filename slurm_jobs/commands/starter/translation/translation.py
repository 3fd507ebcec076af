"""Translation of another tool's training to changes of the starter spec, with its account."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from slurm_jobs.base.redact import hidden_text, looks_secret
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.commands.starter.other_tools.account import AccountRow, Fate, value_text
from slurm_jobs.commands.starter.other_tools.foreign_training import has_value, is_computed
from slurm_jobs.commands.starter.other_tools.start_point import StartPoint
from slurm_jobs.commands.starter.other_tools.tool_table import Meaning, Setting, Without
from slurm_jobs.commands.starter.sample_lengths import LengthLimits
from slurm_jobs.commands.starter.spec_changes import Change
from slurm_jobs.commands.starter.starter_facts import Data, JobPlace, Model
from slurm_jobs.formats.processors.image_plans import ImageRules
from slurm_jobs.spec.overrides.text_edits import inline_text
from slurm_jobs.spec.yaml.document import KeyPath

_SHORTEST_SECRET = 6
"""Fewest characters of a secret: numbers of tokens (`IMAGE_MAX_TOKEN_NUM`) are shorter."""
_CONFIGS: dict[str, KeyPath] = {
    stage: ("stages", stage, "config") for stage in ("preprocess", "train")
}


@dataclass(frozen=True, kw_only=True, slots=True)
class StartFacts:
    """Facts of cluster, data and model that a translation depends on."""

    place: JobPlace
    data: Data
    model: Model
    kind: str
    """Name and type of the model, by which its family is known."""
    rules: ImageRules | None
    """What the model's processor makes of images; None if unknown."""
    name: str
    """Name of the spec."""

    @property
    def num_ranks(self) -> int:
        """Return the ranks that `init` chose: the GPUs of a node, or one."""
        return max(1, (self.place.gpu or self.place.cpu).gpus)


class Translation:
    """Changes of the spec that `init` writes, and what became of each key."""

    def __init__(self, start: StartPoint, facts: StartFacts) -> None:
        """Begin without changes."""
        self.training = start.training
        self.start = start
        self.facts = facts
        self.changes: list[Change] = []
        self.dropped: list[str] = []
        """Keys of the starter's configs that are left out."""
        self.limits = LengthLimits()
        self.is_packed = False
        self.is_quantized = False
        self.held_out_share = 0.0
        """Share of the rows that are not trained on."""
        self.num_ranks = facts.num_ranks
        self.num_steps: int | None = None
        """Steps of the training; None if they cannot be known yet."""
        self._accounts: dict[Meaning, tuple[Fate, str]] = {}

    def change(self, key: str, value: Any, *, stage: str = "train") -> str:
        """Set a key of a stage's config, and return it with its value for the account."""
        self.changes.append(((*_CONFIGS[stage], *key.split(".")), value))
        return f"`{key}: {inline_text(value)}`"

    def account(self, meaning: Meaning, fate: Fate, text: str) -> None:
        """State what became of all keys of a meaning; a later statement replaces an earlier."""
        self._accounts[meaning] = (fate, text)

    def keep(self, meaning: Meaning, key: str, value: Any, *, stage: str = "train") -> None:
        """Set a key to a value that means the same under another name, if there is a value."""
        if value is not None:
            self.account(meaning, "kept", self.change(key, value, stage=stage))

    def account_all(self, meanings: Iterable[Meaning], fate: Fate, text: str) -> None:
        """State the same of the keys of several meanings."""
        for meaning in meanings:
            self.account(meaning, fate, text)

    def without(self, meanings: Iterable[Meaning], reason: str) -> None:
        """State why keys have no counterpart."""
        self.account_all(meanings, "without", reason)

    def rows(self) -> list[AccountRow]:
        """Return a row for each key of the file, and for each default that set something."""
        rows = []
        for setting in self.training.settings:
            row = self._row(setting)
            if row is not None:
                rows.append(row)
        return rows

    def _row(self, setting: Setting) -> AccountRow | None:
        rule = self.training.rule(setting)
        fate: Fate = "without"
        text = ""
        if isinstance(rule, Without):
            text = rule.reason
        elif rule is not None:
            fate, text = self._accounts.get(rule, ("without", "it has no effect here"))
        if setting.is_default:
            if rule is None or isinstance(rule, Without) or fate == "without" or not text:
                return None
            fate = "default"
        elif is_computed(setting):
            fate, text = "computed", "the shell knows it only when the script runs: set it yourself"
        elif not has_value(setting):
            fate, text = "empty", "nothing is set"
        elif rule is None:
            near = did_you_mean(setting.table_key, self.training.tool.table)
            fate, text = "unknown", f"{self.training.tool.name} has no such key that is known{near}"
        return AccountRow(key=setting.key, value=_shown(setting), fate=fate, text=text)


def _shown(setting: Setting) -> str:
    if setting.value is None:
        return ""
    value = setting.value
    is_long = isinstance(value, (str, int)) and len(str(value)) >= _SHORTEST_SECRET
    if is_long and looks_secret(setting.key):
        return "(hidden)"
    is_flag = isinstance(value, bool)
    return hidden_text(value_text(str(value).lower() if is_flag else value))
