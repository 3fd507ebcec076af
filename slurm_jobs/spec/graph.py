"""The graph of stages: order, ancestors, cycles, and what stages need of each other. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.markers import referenced_stage, references
from slurm_jobs.spec.validation import did_you_mean, path_text, problem_at
from slurm_jobs.spec.yaml_values import YamlDocument


@dataclass(frozen=True, kw_only=True, slots=True)
class StageView:
    """What the graph needs of a stage, read leniently: other keys of it may be wrong."""

    run: str | None
    parents: tuple[str, ...]
    config: Mapping[str, Any]
    num_ranks: int
    has_array: bool


Views = Mapping[str, StageView]


def stage_views(values: Any) -> dict[str, StageView]:
    """The stages of a spec's raw values, as far as they have a readable form."""
    stages = values.get("stages") if isinstance(values, dict) else None
    if not isinstance(stages, dict):
        return {}
    return {name: _view(stage) for name, stage in stages.items() if isinstance(stage, dict)}


def _view(stage: Mapping[str, Any]) -> StageView:
    after = stage.get("after") or ()
    parents = (after,) if isinstance(after, str) else tuple(after) if _is_many(after) else ()
    resources = stage.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    counts = [resources.get(key, 1) for key in ("nodes", "tasks_per_node")]
    known = all(isinstance(count, int) for count in counts)
    config = stage.get("config")
    run = stage.get("run")
    return StageView(
        run=run if isinstance(run, str) else None,
        parents=tuple(p for p in parents if isinstance(p, str)),
        config=config if isinstance(config, dict) else {},
        num_ranks=counts[0] * counts[1] if known else 1,
        has_array=stage.get("array") is not None,
    )


def _is_many(after: Any) -> bool:
    return isinstance(after, (list, dict))


def stage_order(parents: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Stages so that each comes after its parents; among equals, the order of the file.

    Raises:
        ValueError: there is a cycle; the message shows it.
    """
    order: list[str] = []
    state: dict[str, str] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if state.get(name) == "done":
            return
        if state.get(name) == "open":
            cycle = (*trail[trail.index(name) :], name)
            raise ValueError(" -> ".join(cycle))
        state[name] = "open"
        for parent in parents[name]:
            if parent in parents:
                visit(parent, (*trail, name))
        state[name] = "done"
        order.append(name)

    for name in parents:
        visit(name, ())
    return tuple(order)


def ancestors(views: Views, stage: str) -> tuple[str, ...]:
    """All stages that come before `stage`, nearest first; the graph has no cycle."""
    found: list[str] = []
    queue = list(views[stage].parents)
    while queue:
        name = queue.pop(0)
        if name not in found and name in views:
            found.append(name)
            queue.extend(views[name].parents)
    return tuple(found)


def graph_problems(views: Views, document: YamlDocument) -> list[Problem]:
    """Unknown parents, cycles, references to stages that do not come before, missing parents."""
    problems = _unknown_parents(views, document)
    try:
        stage_order({name: stage.parents for name, stage in views.items()})
    except ValueError as error:
        first = str(error).split(" -> ", maxsplit=1)[0]
        message = f"the stages wait for each other in a cycle: {error}"
        return [*problems, problem_at(document, ("stages", first, "after"), message, at_key=True)]
    for name, stage in views.items():
        problems += _reference_problems(views, document, name, stage)
        problems += _builtin_problems(views, document, name, stage)
    return problems


def _unknown_parents(views: Views, document: YamlDocument) -> list[Problem]:
    problems = []
    for name, stage in views.items():
        for parent in stage.parents:
            if parent in views:
                continue
            near = did_you_mean(parent, views)
            message = (
                f"stage `{name}` comes after `{parent}`, which is no stage of this spec{near} "
                f"(stages: {', '.join(views)})"
            )
            place = ("stages", name, "after", parent)
            problems.append(problem_at(document, place, message))
    return problems


def _reference_problems(
    views: Views, document: YamlDocument, name: str, stage: StageView
) -> list[Problem]:
    known = ancestors(views, name)
    problems = []
    for path, inner in references(stage.config, ("stages", name, "config")):
        target = referenced_stage(inner)
        if target is None:
            message = (
                f"{path_text(path)}: `${{{inner}}}` is no reference; "
                "`${stage.output_dir}` is the only form"
            )
        elif target not in known:
            near = did_you_mean(target, known)
            message = (
                f"{path_text(path)}: `${{{inner}}}` names `{target}`, which does not come before "
                f"`{name}`{near} (before it: {', '.join(known) or 'nothing'})"
            )
        else:
            continue
        problems.append(problem_at(document, path, message))
    return problems


def _builtin_problems(
    views: Views, document: YamlDocument, name: str, stage: StageView
) -> list[Problem]:
    problems = []
    needed = {"consolidate": "preprocess", "train": "consolidate"}.get(stage.run or "")
    has_own = stage.run == "train" and stage.config.get("dataset") is not None
    if needed and not has_own and not any(
        views[p].run == needed for p in stage.parents if p in views
    ):
        message = f"stage `{name}` runs `{stage.run}` and must come after a stage that runs `{needed}`"
        if stage.run == "train":
            message += ", or name its data set as config.dataset"
        problems.append(problem_at(document, ("stages", name), message, at_key=True))
    if stage.run in {"preprocess", "consolidate", "report"} and stage.num_ranks > 1:
        message = (
            f"`{stage.run}` runs as one task, but resources ask for {stage.num_ranks} "
            "(nodes x tasks_per_node); threads use cpus_per_task"
        )
        problems.append(problem_at(document, ("stages", name, "resources"), message, at_key=True))
    if stage.run in {"consolidate", "train", "report"} and stage.has_array:
        message = f"`{stage.run}` is one job; an array is for preprocess and stages of your own"
        problems.append(problem_at(document, ("stages", name, "array"), message, at_key=True))
    return problems
