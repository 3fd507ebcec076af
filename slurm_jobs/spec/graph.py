"""Graph of stages: order, ancestors, cycles, and requirements between stages. PURE."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.errors import Problem, did_you_mean
from slurm_jobs.common.references import REFERENCE, referenced_stage
from slurm_jobs.spec.model import MAX_STAGES
from slurm_jobs.spec.validation import problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument


@dataclass(frozen=True, kw_only=True, slots=True)
class StageView:
    """Keys of a stage that the graph needs, read leniently: other keys may be wrong."""

    run: str | None
    parents: tuple[str, ...]
    parent_places: Mapping[str, Path]
    """Place of each parent's name, below the stage."""
    config: Mapping[str, Any] | None
    """Config of the stage; None if the value has no keys."""
    num_ranks: int
    has_array: bool
    keys: Mapping[str, Any]
    """All keys in the file."""


Views = Mapping[str, StageView]


def stage_views(values: Any) -> dict[str, StageView]:
    """Return the stages in a spec's raw values; one of unreadable form counts as empty."""
    stages = values.get("stages") if isinstance(values, dict) else None
    if not isinstance(stages, dict):
        return {}
    chosen = list(stages.items())[:MAX_STAGES]
    return {name: _view(stage if isinstance(stage, dict) else {}) for name, stage in chosen}


def _view(stage: Mapping[str, Any]) -> StageView:
    places = _parent_places(stage.get("after"))
    resources = stage.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    counts = [resources.get(key, 1) for key in ("nodes", "tasks_per_node")]
    known = all(isinstance(count, int) for count in counts)
    config = stage.get("config", {})
    run = stage.get("run")
    return StageView(
        run=run if isinstance(run, str) else None,
        parents=tuple(places),
        parent_places=places,
        config=config if isinstance(config, dict) else None,
        num_ranks=counts[0] * counts[1] if known else 1,
        has_array=stage.get("array") is not None,
        keys=stage,
    )


def _parent_places(after: Any) -> dict[str, Path]:
    if isinstance(after, str):
        return {after: ("after",)}
    if isinstance(after, list):
        return {name: ("after", i) for i, name in enumerate(after) if isinstance(name, str)}
    if isinstance(after, dict):
        return {name: ("after", name) for name in after}
    return {}


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
    found: dict[str, None] = {}
    queue = deque(views[stage].parents)
    while queue:
        name = queue.popleft()
        if name not in found and name in views and name != stage:
            found[name] = None
            queue.extend(views[name].parents)
    return tuple(found)


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


def _only_parent(views: Views, name: str, run: str) -> str | None:
    """Return the only direct parent with that `run`."""
    found = [p for p in views[name].parents if p in views and views[p].run == run]
    return found[0] if len(found) == 1 else None


def graph_problems(views: Views, document: YamlDocument) -> list[Problem]:
    """Return unknown parents, cycles, and missing inputs of built-in stages.

    `stage_references` checks references.
    """
    problems = _unknown_parents(views, document)
    problems += _cycle_problems(views, document)
    for name, stage in views.items():
        problems += _builtin_problems(views, document, name, stage)
    return problems


def _cycle_problems(views: Views, document: YamlDocument) -> list[Problem]:
    _, cycles = _walk({name: stage.parents for name, stage in views.items()})
    problems = []
    for cycle in cycles:
        if len(cycle) == 1:
            message = f"stage `{cycle[0]}` comes after itself"
        else:
            message = f"the stages wait for each other in a cycle: {cycle_text(cycle)}"
        # The last stage of the trail names the first, which closes the cycle.
        problems.append(_at_parent(document, views, cycle[-1], cycle[0], message))
    return problems


def _unknown_parents(views: Views, document: YamlDocument) -> list[Problem]:
    problems = []
    for name, stage in views.items():
        for parent in stage.parents:
            if parent in views:
                continue
            message = (
                f"stage `{name}` comes after `{parent}`, which is no stage of this spec"
                f"{did_you_mean(parent, views)} (stages: {', '.join(views)})"
            )
            problems.append(_at_parent(document, views, name, parent, message))
    return problems


def _at_parent(
    document: YamlDocument, views: Views, stage: str, parent: str, message: str
) -> Problem:
    """Return a problem at the place where a stage names a parent."""
    place = views[stage].parent_places[parent]
    # A single name is the value of `after`; in a list or mapping it is the key.
    return problem_at(document, ("stages", stage, *place), message, at_key=len(place) > 1)


def _names_its_data(config: Mapping[str, Any]) -> bool:
    """Check whether a training, or each of its phases, names its data set."""
    phases = config.get("phases") or [{}]
    return config.get("dataset") is not None or all(
        isinstance(phase, Mapping) and phase.get("dataset") is not None for phase in phases
    )


def _ambiguous(views: Views, document: YamlDocument, name: str, sources: Sequence[str]) -> Problem:
    """Return a problem if a built-in stage would read only the first of several stages."""
    run = views[sources[0]].run
    remedy = "preprocess all rows in one stage, or follow each with its own `consolidate`"
    if run == "consolidate":
        remedy = f"name it, as in `dataset: ${{{sources[0]}.output_dir}}`"
    message = (
        f"stage `{name}` comes after {len(sources)} stages that run `{run}` "
        f"({', '.join(sources)}), and reads what one of them made: {remedy}; where they are of one "
        "matrix, share it (`matrix:` with the name of its stage)"
    )
    return _at_parent(document, views, name, sources[1], message)


def _tasks_per_node(stage: StageView) -> int:
    """Return the value in the file; 1 if it is no number, which is reported separately."""
    resources = stage.keys.get("resources")
    given = resources.get("tasks_per_node") if isinstance(resources, Mapping) else None
    return given if isinstance(given, int) else 1


def _builtin_problems(
    views: Views, document: YamlDocument, name: str, stage: StageView
) -> list[Problem]:
    problems = []
    needed = {"consolidate": "preprocess", "train": "consolidate"}.get(stage.run or "")
    has_own = stage.run == "train" and _names_its_data(stage.config or {})
    # A misspelt parent may be the missing one.
    may_follow = any(p not in views or views[p].run == needed for p in stage.parents)
    if needed and not has_own and not may_follow:
        message = (
            f"stage `{name}` runs `{stage.run}` and must come after a stage that runs `{needed}`"
        )
        if stage.run == "train":
            message += ", or name its data set as config.dataset"
        problems.append(problem_at(document, ("stages", name), message, at_key=True))
    sources = [p for p in stage.parents if p in views and views[p].run == needed]
    if needed and not has_own and len(sources) > 1:
        problems.append(_ambiguous(views, document, name, sources))
    if stage.run in {"preprocess", "consolidate", "report"} and stage.num_ranks > 1:
        message = (
            f"`{stage.run}` runs as one task, but resources ask for {stage.num_ranks} "
            "(nodes x tasks_per_node); threads use cpus_per_task"
        )
        problems.append(problem_at(document, ("stages", name, "resources"), message, at_key=True))
    if stage.run == "probe" and _tasks_per_node(stage) > 1:
        message = "`probe` runs one task a node: several would measure each other"
        place = ("stages", name, "resources", "tasks_per_node")
        problems.append(problem_at(document, place, message))
    if stage.run in {"train", "report", "probe"} and stage.has_array:
        message = (
            f"`{stage.run}` is one job; an array is for preprocess, consolidate and your own stages"
        )
        problems.append(problem_at(document, ("stages", name, "array"), message, at_key=True))
    return problems
