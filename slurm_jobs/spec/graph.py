"""The graph of stages: order, ancestors, cycles, and what stages need of each other. PURE."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.markers import referenced_stage, references
from slurm_jobs.spec.model import RunSpec, Stage
from slurm_jobs.spec.validation import did_you_mean, path_text, problem_at
from slurm_jobs.spec.yaml_values import YamlDocument


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


def ancestors(spec: RunSpec, stage: str) -> tuple[str, ...]:
    """All stages that come before `stage`, nearest first; the graph has no cycle."""
    found: list[str] = []
    queue = list(spec.stages[stage].after)
    while queue:
        name = queue.pop(0)
        if name not in found and name in spec.stages:
            found.append(name)
            queue.extend(spec.stages[name].after)
    return tuple(found)


def graph_problems(spec: RunSpec, document: YamlDocument) -> list[Problem]:
    """Unknown parents, cycles, references to stages that do not come before, missing parents."""
    problems = _unknown_parents(spec, document)
    try:
        stage_order({name: tuple(stage.after) for name, stage in spec.stages.items()})
    except ValueError as error:
        first = str(error).split(" -> ", maxsplit=1)[0]
        message = f"the stages wait for each other in a cycle: {error}"
        return [*problems, problem_at(document, ("stages", first, "after"), message, at_key=True)]
    for name, stage in spec.stages.items():
        problems += _reference_problems(spec, document, name, stage)
        problems += _builtin_problems(spec, document, name, stage)
    return problems


def _unknown_parents(spec: RunSpec, document: YamlDocument) -> list[Problem]:
    problems = []
    for name, stage in spec.stages.items():
        for parent in stage.after:
            if parent in spec.stages:
                continue
            near = did_you_mean(parent, spec.stages)
            message = (
                f"stage `{name}` comes after `{parent}`, which is no stage of this spec{near} "
                f"(stages: {', '.join(spec.stages)})"
            )
            place = ("stages", name, "after", parent)
            problems.append(problem_at(document, place, message))
    return problems


def _reference_problems(
    spec: RunSpec, document: YamlDocument, name: str, stage: Stage
) -> list[Problem]:
    known = ancestors(spec, name)
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
    spec: RunSpec, document: YamlDocument, name: str, stage: Stage
) -> list[Problem]:
    problems = []
    needed = {"consolidate": "preprocess", "train": "consolidate"}.get(stage.run or "")
    has_own = stage.run == "train" and stage.config.get("dataset") is not None
    if needed and not has_own and not any(spec.stages[p].run == needed for p in stage.after):
        message = f"stage `{name}` runs `{stage.run}` and must come after a stage that runs `{needed}`"
        if stage.run == "train":
            message += ", or name its data set as config.dataset"
        problems.append(problem_at(document, ("stages", name), message, at_key=True))
    resources = stage.resources
    num_ranks = resources.nodes * resources.tasks_per_node
    if stage.run in {"preprocess", "consolidate", "report"} and num_ranks > 1:
        message = (
            f"`{stage.run}` runs as one task, but resources ask for {num_ranks} "
            "(nodes x tasks_per_node); threads use cpus_per_task"
        )
        problems.append(problem_at(document, ("stages", name, "resources"), message, at_key=True))
    if stage.run in {"consolidate", "train", "report"} and stage.array is not None:
        message = f"`{stage.run}` is one job; an array is for preprocess and stages of your own"
        problems.append(problem_at(document, ("stages", name, "array"), message, at_key=True))
    return problems
