"""Places in the file of stages that were made from one stage. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurm_jobs.spec.yaml_values import Path, YamlDocument


def kinds_by_parent(after: Any) -> dict[str, Any]:
    """Return kinds by parent, for every form of `after`; empty for an invalid form."""
    return {parent: kind for parent, (kind, _) in _parents(after).items()}


def _parents(after: Any) -> dict[str, tuple[Any, Path]]:
    """Return the kind of each parent, and its place below the stage."""
    if isinstance(after, str):
        return {after: ("afterok", ("after",))}
    if isinstance(after, list) and all(isinstance(parent, str) for parent in after):
        return {parent: ("afterok", ("after", number)) for number, parent in enumerate(after)}
    if isinstance(after, dict):
        return {parent: (kind, ("after", parent)) for parent, kind in after.items()}
    return {}


class StagePlaces:
    """Collector of the places in a document whose stages get other names."""

    def __init__(self, document: YamlDocument) -> None:
        self._document = document
        tables: dict[str, Mapping[Path, Any]] = {
            "key_places": document.key_places,
            "value_places": document.value_places,
            "sources": document.sources,
            "tagged": dict.fromkeys(document.tagged),
        }
        self._given: dict[str, dict[str, dict[Path, Any]]] = {table: {} for table in tables}
        self._found: dict[str, dict[Path, Any]] = {}
        for table, places in tables.items():
            self._found[table] = {p: v for p, v in places.items() if not _is_of_a_stage(p)}
            for path, value in places.items():
                if _is_of_a_stage(path):
                    below = self._given[table].setdefault(str(path[1]), {})
                    below[path[2:]] = value

    def copy(self, name: str, member: str) -> None:
        """Copy the places of `member` for the stage `name`."""
        for table, found in self._found.items():
            for below, value in self._given[table].get(name, {}).items():
                place = ("stages", member, *below)
                found[place] = value

    def copy_parents(self, name: str, member: str, renamed: Mapping[str, Sequence[str]]) -> None:
        """Copy the place of each parent of `member` from its original parent in `name`."""
        stages = self._document.value["stages"]
        stage = stages[name] if isinstance(stages[name], dict) else {}
        for parent, (_, below) in _parents(stage.get("after")).items():
            for new in renamed.get(parent, ()):
                for table in ("key_places", "value_places"):
                    given = self._given[table].get(name, {})
                    if below in given:
                        self._found[table]["stages", member, "after", new] = given[below]

    def found(self) -> dict[str, Any]:
        """Return the collected places, by the document's own names."""
        return {**self._found, "tagged": frozenset(self._found["tagged"])}


def _is_of_a_stage(path: Path) -> bool:
    return len(path) > 1 and path[0] == "stages"
