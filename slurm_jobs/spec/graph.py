"""Graph of stages: order, ancestors, cycles, and requirements between stages. PURE."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from slurm_jobs.shared.errors import Problem, did_you_mean
from slurm_jobs.shared.expand import REFERENCE, referenced_stage
from slurm_jobs.spec.marked_paths import MarkedString
from slurm_jobs.spec.model import MAX_STAGES, RunSpec
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.spec_files import Files
from slurm_jobs.spec.value_types import BUILTIN_STAGES
from slurm_jobs.spec.yaml.document import KeyPath, YamlDocument, path_text, problem_at, was_set


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
DOWNLOADER = "recipes:models"
"""`run` of the stage that `init` writes to download a model."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedSpec:
    """Spec without problems, and its sources."""

    spec: RunSpec
    """Complete spec: absolute paths, and built-in stages' configs with their defaults."""
    profile: ClusterProfile | None
    """Cluster profile; None for `cluster: auto`, which needs a query of Slurm."""
    text: str
    file: str
    spec_dir: str
    overrides: tuple[str, ...]
    """All overrides in it."""
    document: YamlDocument
    """Document with the places of later problems."""
    left_out: tuple[str, ...] = ()
    """Descriptions of earlier overrides whose stage no longer exists."""
    notes: tuple[Problem, ...] = ()
    """Settings that are valid but probably unintended, each with its place."""


Finding = tuple[Problem, bool]
"""Problem, and whether it is an error; else it is a note."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedSpec:
    """Spec as its checks see it: raw values with their places, and what is valid of them."""

    document: YamlDocument
    views: Views
    files: Files
    configs: Mapping[str, Any] = field(default_factory=dict)
    """Configs of the built-in stages, those without problems."""
    marked: Sequence[MarkedString] = ()
    """All paths in it, and texts in which variables were replaced."""

    @property
    def expanded(self) -> list[MarkedString]:
        """Return the paths without an unknown variable in them."""
        return [item for item in self.marked if not item.problem]

    @property
    def folder(self) -> str:
        """Return the folder of the spec's file."""
        return str(PurePosixPath(self.document.file).parent)

    def problem(self, path: KeyPath, message: str, *, at_key: bool = False) -> Problem:
        """Return a problem with the value at `path`, whose name the message then begins with."""
        return self.at(path, f"{path_text(path)}: {message}", at_key=at_key)

    def at(self, path: KeyPath, message: str, *, at_key: bool = False) -> Problem:
        """Return a problem with this message, at `path`."""
        return problem_at(self.document, path, message, at_key=at_key)

    def first_set(self, stage: str, *keys: KeyPath) -> KeyPath:
        """Return the first of a stage's keys that was set on the command line; else empty."""
        place: KeyPath = ("stages", stage)
        paths = ((*place, *key) for key in keys)
        return next((path for path in paths if was_set(self.document, place, path)), ())


def stage_order(parents: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the stages so that each comes after its parents, otherwise in the file's order.

    Raises:
        ValueError: there is a cycle.
    """
    order, cycles = _walk(parents)
    if cycles:
        message = f"the stages wait for each other: {cycle_text(cycles[0])}"
        raise ValueError(message)
    return order


def cycle_text(cycle: Sequence[str]) -> str:
    """Format a cycle: `train after consolidate after train`."""
    return " after ".join([*cycle, cycle[0]])


def _walk(parents: Mapping[str, tuple[str, ...]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Walk depth first, parents before children, and return the order and the cycles."""
    order: list[str] = []
    cycles: list[tuple[str, ...]] = []
    done: set[str] = set()
    for root in parents:
        trail: dict[str, Iterator[str]] = {} if root in done else {root: iter(parents[root])}
        while trail:
            name = next(reversed(trail))
            parent = next(trail[name], None)
            if parent is None:
                del trail[name]
                done.add(name)
                order.append(name)
            elif parent in trail:
                names = list(trail)
                cycles.append(tuple(names[names.index(parent) :]))
            elif parent in parents and parent not in done:
                trail[parent] = iter(parents[parent])
    return tuple(order), cycles


def ancestors(views: Views, stage: str) -> tuple[str, ...]:
    """Return all stages that come before `stage`, nearest first."""
    names: dict[str, None] = {}
    queue = deque(views[stage].parents)
    while queue:
        name = queue.popleft()
        if name not in names and name in views and name != stage:
            names[name] = None
            queue.extend(views[name].parents)
    return tuple(names)


def may_be_made(spec: CheckedSpec, stage: str) -> bool:
    """Check whether a stage before this one may create files that a manifest names.

    Built-in stages write elsewhere, and the one that `init` writes only downloads models.
    """
    runs = {spec.views[name].run for name in ancestors(spec.views, stage)}
    return not runs <= {*BUILTIN_STAGES, DOWNLOADER}


def preprocess_of(views: Views, train: str, dataset: Any) -> str | None:
    """Return the `preprocess` stage of a training's samples; None if this spec has none.

    Args:
        views: the stages.
        train: the training's name.
        dataset: as in its config, or in a phase.
    """
    source = _only_parent(views, train, "consolidate") if dataset is None else None
    if isinstance(dataset, str) and (match := REFERENCE.fullmatch(dataset.rstrip("/"))):
        source = referenced_stage(match[1])
    if source is None or source not in views or views[source].run != "consolidate":
        return None
    return _only_parent(views, source, "preprocess")


def consolidates_of(views: Views, preprocess: str) -> tuple[str, ...]:
    """Return the `consolidate` stages that read the samples of a `preprocess` stage."""
    return tuple(
        name
        for name, view in views.items()
        if view.run == "consolidate" and preprocess in view.parents
    )


def _only_parent(views: Views, name: str, run: str) -> str | None:
    """Return the only direct parent with that `run`."""
    matching = [p for p in views[name].parents if p in views and views[p].run == run]
    return matching[0] if len(matching) == 1 else None


def graph_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield unknown parents, cycles, and missing inputs of built-in stages.

    `reference_problems` checks references.
    """
    views = spec.views
    for name, stage in views.items():
        for parent in stage.parents:
            if parent not in views:
                message = (
                    f"stage `{name}` comes after `{parent}`, which is not a stage of this spec"
                    f"{did_you_mean(parent, views)} (stages: {', '.join(views)})"
                )
                yield _at_parent(spec, name, parent, message)
    for cycle in _walk({name: stage.parents for name, stage in views.items()})[1]:
        message = f"the stages wait for each other in a cycle: {cycle_text(cycle)}"
        if len(cycle) == 1:
            message = f"stage `{cycle[0]}` comes after itself"
        # The last stage of the trail names the first, which closes the cycle.
        yield _at_parent(spec, cycle[-1], cycle[0], message)
    for name, stage in views.items():
        yield from _input_problems(spec, name, stage)
        place: KeyPath = ("stages", name)
        if stage.run in {"preprocess", "consolidate", "report"} and stage.num_ranks > 1:
            message = (
                f"`{stage.run}` runs as one task, but resources ask for {stage.num_ranks} "
                "(nodes x tasks_per_node); threads use cpus_per_task"
            )
            yield spec.at((*place, "resources"), message, at_key=True)
        num_tasks = stage.resources.get("tasks_per_node")
        if stage.run == "probe" and isinstance(num_tasks, int) and num_tasks > 1:
            message = "`probe` runs one task a node: several would measure each other"
            yield spec.at((*place, "resources", "tasks_per_node"), message)
        if stage.run in {"train", "report", "probe"} and stage.has_array:
            message = (
                f"`{stage.run}` is one job; an array is for preprocess, consolidate and your own "
                "stages"
            )
            yield spec.at((*place, "array"), message, at_key=True)


def _at_parent(spec: CheckedSpec, stage: str, parent: str, message: str) -> Problem:
    """Return a problem at the place where a stage names a parent."""
    place = spec.views[stage].parent_places[parent]
    # A single name is the value of `after`; in a list or mapping it is the key.
    return spec.at(("stages", stage, *place), message, at_key=len(place) > 1)


def _input_problems(spec: CheckedSpec, name: str, stage: StageView) -> Iterator[Problem]:
    """Yield a problem if a built-in stage lacks its input, or would read only one of several."""
    views = spec.views
    needed = {"consolidate": "preprocess", "train": "consolidate"}.get(stage.run or "")
    config = stage.config or {}
    has_own = stage.run == "train" and (
        config.get("dataset") is not None
        or all(
            isinstance(phase, Mapping) and phase.get("dataset") is not None
            for phase in config.get("phases") or [{}]
        )
    )
    if needed is None or has_own:
        return
    # A misspelt parent may be the missing one.
    if not any(p not in views or views[p].run == needed for p in stage.parents):
        message = (
            f"stage `{name}` runs `{stage.run}` and must come after a stage that runs `{needed}`"
        )
        if stage.run == "train":
            message += ", or name its data set as config.dataset"
        yield spec.at(("stages", name), message, at_key=True)
    sources = [p for p in stage.parents if p in views and views[p].run == needed]
    if len(sources) > 1:
        remedy = "preprocess all rows in one stage, or follow each with its own `consolidate`"
        if needed == "consolidate":
            remedy = f"name it, as in `dataset: ${{{sources[0]}.output_dir}}`"
        message = (
            f"stage `{name}` comes after {len(sources)} stages that run `{needed}` "
            f"({', '.join(sources)}), but reads only one of them: {remedy}; if they are of one "
            "matrix, share it (`matrix:` with the name of its stage)"
        )
        yield _at_parent(spec, name, sources[1], message)
