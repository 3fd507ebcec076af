"""Graph of stages: order, ancestors, cycles, and requirements between stages. PURE."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.formats.configs.output_references import REFERENCE, referenced_stage
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.stage_views import StageView, Views
from slurm_jobs.spec.value_types import BUILTIN_STAGES
from slurm_jobs.spec.yaml.document import KeyPath

DOWNLOADER = "recipes:models"
"""`run` of the stage that `init` writes to download a model."""
_ONE_TASK = frozenset({"download", "preprocess", "consolidate", "report"})
_WITHOUT_ARRAY = frozenset({"download", "train", "report", "probe"})


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
    """Walk depth first, parents before children, and return the order and the cycles.

    It does not recurse, so that a long chain of stages cannot exceed Python's limit.
    """
    order: dict[str, None] = {}
    cycles: list[tuple[str, ...]] = []
    for root in parents:
        if root in order:
            continue
        # From the root to the current stage, each with an iterator over its parents still to visit.
        trail: dict[str, Iterator[str]] = {root: iter(parents[root])}
        while trail:
            current = next(reversed(trail))
            parent = next(trail[current], None)
            if parent is None:
                del trail[current]
                order[current] = None
            elif parent in trail:
                names = list(trail)
                cycles.append(tuple(names[names.index(parent) :]))
            elif parent in parents and parent not in order:
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
    source = consolidate_of(views, train, dataset)
    return None if source is None else _only_parent(views, source, "preprocess")


def consolidate_of(views: Views, train: str, dataset: Any) -> str | None:
    """Return the `consolidate` stage that writes a training's data set; as `preprocess_of`."""
    source = None
    if dataset is None:
        source = _only_parent(views, train, "consolidate")
    elif isinstance(dataset, str):
        reference = REFERENCE.fullmatch(dataset.rstrip("/"))
        source = referenced_stage(reference[1]) if reference is not None else None
    if source is None or source not in views or views[source].run != "consolidate":
        return None
    return source


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
        if stage.run in _ONE_TASK and stage.num_ranks > 1:
            message = (
                f"`{stage.run}` runs as one task, but resources ask for {stage.num_ranks} "
                "(nodes x tasks_per_node); threads use cpus_per_task"
            )
            yield spec.at((*place, "resources"), message, at_key=True)
        num_tasks = stage.resources.get("tasks_per_node")
        if stage.run == "probe" and isinstance(num_tasks, int) and num_tasks > 1:
            message = "`probe` runs one task a node: several would measure each other"
            yield spec.at((*place, "resources", "tasks_per_node"), message)
        if stage.run in _WITHOUT_ARRAY and stage.has_array:
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
    sources = [p for p in stage.parents if p in views and views[p].run == needed]
    has_misspelt_parent = any(p not in views for p in stage.parents)  # perhaps the missing one
    if not sources and not has_misspelt_parent:
        message = (
            f"stage `{name}` runs `{stage.run}` and must come after a stage that runs `{needed}`"
        )
        if stage.run == "train":
            message += ", or name its data set as config.dataset"
        yield spec.at(("stages", name), message, at_key=True)
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
