"""Values that determined the output of a run's stages in its plans, by fingerprint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from slurm_jobs.plan.fingerprints import PARENT, hash_of


class EarlierFields:
    """Fields of the stages of a run's plans."""

    def __init__(self, plans: Iterable[Any]) -> None:
        """Take the fields from the JSON values of plans, see `read_all_plans`."""
        self._fields: dict[tuple[str, str], Mapping[str, str]] = {}
        self._fingerprints: dict[tuple[str, str], str] = {}
        """Fingerprints by stage and their hash, which is what the fields of a child have."""
        for plan in plans:
            for values in plan["stages"]:
                name, fingerprint = values["name"], values["fingerprint"]
                self._fields[name, fingerprint] = values.get("fields", {})
                self._fingerprints[name, hash_of(fingerprint)] = fingerprint

    def of(self, stage: str, fingerprint: str) -> Mapping[str, str]:
        """Return the fields of a stage's fingerprint; empty if no plan has them."""
        return self._fields.get((stage, fingerprint), {})

    def is_same_but_code(
        self, stage: str, fingerprint: str, now: Mapping[str, Mapping[str, str]]
    ) -> bool:
        """Check whether work under `fingerprint` was the same as now, apart from code.

        Args:
            stage: name of the stage.
            fingerprint: of the earlier work.
            now: fields of all stages, by stage.
        """
        before, fields = self.of(stage, fingerprint), now.get(stage)
        if not before or fields is None or before.keys() != fields.keys():
            return False
        for key, value in fields.items():
            if key == "code" or before[key] == value:
                continue
            if not key.startswith(PARENT):
                return False
            parent = key.removeprefix(PARENT)
            fingerprint_then = self._fingerprints.get((parent, before[key]), "")
            if not self.is_same_but_code(parent, fingerprint_then, now):
                return False
        return True
