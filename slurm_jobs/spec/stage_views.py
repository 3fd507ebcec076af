"""Stages of a spec as its checks see them: keys, parents and ranks, read leniently. PURE."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.spec.model import MAX_STAGES
from slurm_jobs.spec.yaml.document import KeyPath


@dataclass(frozen=True, kw_only=True, slots=True)
class StageView:
    """Keys of a stage, read leniently: other keys may be wrong."""

    run: str | None
    parent_places: Mapping[str, KeyPath]
    """Place of each parent's name, below the stage."""
    config: Mapping[str, Any] | None
    """Config of the stage; None if the value has no keys."""
    resources: Mapping[str, Any]
    """Resources of the stage; empty if the value has no keys."""
    keys: Mapping[str, Any]
    """All keys in the file."""

    @property
    def parents(self) -> tuple[str, ...]:
        """Return the names of the parents."""
        return tuple(self.parent_places)

    @property
    def num_ranks(self) -> int:
        """Return the number of ranks; 1 if it is not known."""
        counts = [self.resources.get(key, 1) for key in ("nodes", "tasks_per_node")]
        return math.prod(counts) if all(isinstance(count, int) for count in counts) else 1

    @property
    def has_array(self) -> bool:
        """Check whether the stage is divided into slices."""
        return self.keys.get("array") is not None


Views = Mapping[str, StageView]


def stage_views(values: Any) -> dict[str, StageView]:
    """Return the stages in a spec's raw values; one of unreadable form counts as empty."""
    stages = values.get("stages") if isinstance(values, dict) else None
    views = {}
    for name, given in list((stages if isinstance(stages, dict) else {}).items())[:MAX_STAGES]:
        keys = given if isinstance(given, dict) else {}
        run, config, resources = keys.get("run"), keys.get("config", {}), keys.get("resources")
        views[name] = StageView(
            run=run if isinstance(run, str) else None,
            parent_places=parent_places(keys.get("after")),
            config=config if isinstance(config, dict) else None,
            resources=resources if isinstance(resources, dict) else {},
            keys=keys,
        )
    return views


def parent_places(after: Any) -> dict[str, KeyPath]:
    """Return the place of each parent's name below the stage, for every form of `after`."""
    if isinstance(after, str):
        return {after: ("after",)}
    if isinstance(after, list):
        return {name: ("after", i) for i, name in enumerate(after) if isinstance(name, str)}
    return {name: ("after", name) for name in after} if isinstance(after, dict) else {}
