"""Graph of stages: order, ancestors, cycles, and requirements between stages. PURE."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from slurm_jobs.shared.errors import Problem, did_you_mean
from slurm_jobs.shared.expand import (
    REFERENCE,
    UNESCAPED_REFERENCE,
    output_dir_variable,
    referenced_stage,
    stage_that_begins,
)
from slurm_jobs.spec.model import MAX_STAGES, axis_variable, is_member, origin_of
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.spec_files import Files, references
from slurm_jobs.spec.yaml import KeyPath, YamlDocument, path_text, problem_at


@dataclass(frozen=True, kw_only=True, slots=True)
class StageView:
    """Keys of a stage that the graph needs, read leniently: other keys may be wrong."""

    run: str | None
    parents: tuple[str, ...]
    parent_places: Mapping[str, KeyPath]
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


def _parent_places(after: Any) -> dict[str, KeyPath]:
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

    `reference_problems` checks references.
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


# Check that the functions that a spec names exist in the user's modules; runs nothing.


def entry_point_problems(
    views: Mapping[str, StageView],
    document: YamlDocument,
    spec_dir: str,
    read_text: Callable[[str], str],
) -> list[Problem]:
    """Return functions that a module next to the spec lacks, and modules with syntax errors.

    A module elsewhere belongs to the stage's Python and is not read.
    """
    problems = []
    for name, view in views.items():
        module, colon, function = (view.run or "").partition(":")
        if not colon:
            continue
        message = _message(module, function, spec_dir, read_text)
        if message is not None:
            place = ("stages", name, "run")
            problems.append(problem_at(document, place, f"stages.{name}.run: {message}"))
    return problems


def module_problems(
    views: Mapping[str, StageView],
    document: YamlDocument,
    spec_dir: str,
    files: Files,
    profile: ClusterProfile | None,
) -> list[Problem]:
    """Return modules that do not exist, if a module with a similar name is next to the spec.

    Only for stages that run in this Python with its module path unchanged.
    """
    problems = []
    beside = modules_of_spec(document.value, spec_dir, files)
    for name, view in views.items():
        module, colon, _ = (view.run or "").partition(":")
        module = module.partition(".")[0]
        near = did_you_mean(module, beside) if colon and module not in beside else ""
        if not near or _looks_elsewhere(view, document.value, profile) or files.has_module(module):
            continue
        message = (
            f"stages.{name}.run: there is no module `{module}` next to the spec or in this "
            f"Python{near}"
        )
        problems.append(problem_at(document, ("stages", name, "run"), message))
    return problems


def modules_of_spec(values: Any, spec_dir: str, files: Files) -> frozenset[str]:
    """Return the modules that a run's snapshot can hold: next to the spec, and under `code:`."""
    code = values.get("code") if isinstance(values, dict) else None
    given = code if isinstance(code, list) else []  # other values are reported elsewhere
    listed = [PurePosixPath(path) for path in given if isinstance(path, str)]
    own = {path.stem for path in listed if path.suffix in {"", ".py"}}
    return frozenset({*files.modules_in(spec_dir), *own})


def _looks_elsewhere(view: StageView, values: Any, profile: ClusterProfile | None) -> bool:
    """Check whether the stage runs in another Python, or set-up or environment may add modules."""
    given: list[Mapping[str, Any]] = [view.keys, values]
    if profile is not None:
        given.append(profile.model_dump())
    return any(
        keys.get("python") or keys.get("setup") or _sets_module_path(keys.get("environment"))
        for keys in given
    )


def _sets_module_path(environment: Any) -> bool:
    return isinstance(environment, Mapping) and "PYTHONPATH" in environment


def _message(
    module: str, function: str, spec_dir: str, read_text: Callable[[str], str]
) -> str | None:
    stem = PurePosixPath(spec_dir, *module.split("."))
    for file in (f"{stem}.py", f"{stem}/__init__.py"):
        try:
            # Python accepts a byte order mark at the start of a module.
            tree = ast.parse(read_text(file).removeprefix("\ufeff"), file)
        except (OSError, UnicodeDecodeError):
            continue
        except (SyntaxError, ValueError) as error:
            return f"{file} is no valid Python: {error}"
        names = _names(tree)
        if names is None or function in names:
            return None
        return f"{file} defines no `{function}`{did_you_mean(function, names)}"
    return None


def _names(tree: ast.Module) -> set[str] | None:
    """Return the names that a module defines or imports at top level; None if unknown."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            if any(alias.name == "*" for alias in node.names):
                return None
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


# References to stages and matrix axes: where they are allowed, what they may name.
#
# In a config `${train.output_dir}` is replaced, elsewhere it is not. In bash it is a "bad
# substitution": the line fails with exit code 1, hours later, and bash continues with the next
# line. To bash, `${my-first.output_dir}` is `$my` or else the text `first.output_dir`.


_AXIS_OF = "matrix."
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_READ_BY_BASH = ("shell", "setup")
_SHARED_KEYS = ("setup", "environment")
"""Keys, of a stage and of the whole spec, that become lines of the batch script. A value of
`environment` is kept unchanged, so a reference without a stage in it may belong to the user's
program."""


def reference_problems(
    views: Views, document: YamlDocument, paths: Collection[KeyPath] = ()
) -> list[Problem]:
    """Return references to unknown names, or in places where they are not replaced.

    In the values at `paths`, `${NAME}` is an environment variable.
    """
    problems = _shared_shell_problems(views, document)
    for name, stage in views.items():
        problems += _config_problems(views, document, name, stage, paths)
        problems += _shell_problems(views, document, name, stage)
    return problems


def _config_problems(
    views: Views,
    document: YamlDocument,
    name: str,
    stage: StageView,
    paths: Collection[KeyPath],
) -> list[Problem]:
    known = ancestors(views, name)
    problems = []
    for path, inner in references(stage.config or {}, ("stages", name, "config")):
        target = referenced_stage(inner)
        is_variable = path in paths and _VARIABLE.fullmatch(inner) is not None
        if is_variable and inner not in views:
            continue  # an unknown one is a problem of the path
        if inner.startswith(_AXIS_OF):
            message = f"{path_text(path)}: {_no_axis(name, stage, inner)}"
        elif target is None:
            message = (
                f"{path_text(path)}: `${{{inner}}}` is no reference; `${{stage.output_dir}}` and "
                "`${matrix.AXIS}` are the only forms (in a path, `$NAME` and `${NAME}` are "
                "environment variables)"
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


def _no_axis(name: str, stage: StageView, inner: str) -> str:
    """Return a message if `${matrix.AXIS}` remains after the expansion: it names no axis."""
    axes = _axes(stage)
    axis = inner.removeprefix(_AXIS_OF)
    return (
        f"`${{{inner}}}`: stage `{name}` has no axis `{axis}` in its matrix"
        f"{did_you_mean(axis, axes)} (axes: {', '.join(axes) or 'none'})"
    )


def _axes(stage: StageView) -> list[str]:
    return [*stage.keys["matrix"][0]] if is_member(stage.keys) else []


def _shared_shell_problems(views: Views, document: YamlDocument) -> list[Problem]:
    """Return references in the set-up lines and the environment of all stages."""
    values = document.value if isinstance(document.value, dict) else {}
    problems = []
    for key in _SHARED_KEYS:
        for path, inner in _found(values.get(key), (key,)):
            target = _target(inner, key, views)
            if inner.startswith(_AXIS_OF) or target is not None:
                message = f"{path_text(path)}: {_config_alone(inner, target, views)}"
                problems.append(problem_at(document, path, message))
    return problems


def _found(values: object, path: KeyPath) -> list[tuple[KeyPath, str]]:
    r"""Yield references in shell text or an environment; in a shell `\${...}` is plain text."""
    pattern = UNESCAPED_REFERENCE if path[-1] in _READ_BY_BASH else REFERENCE
    return references(values, path, pattern)


def _target(inner: str, key: str, views: Views) -> str | None:
    """Return the stage of a reference that needs a message; in a shell also an unknown one."""
    target = None if inner.startswith(_AXIS_OF) else stage_that_begins(inner)
    return target if key in _READ_BY_BASH or target in views else None


def _config_alone(inner: str, target: str | None, views: Views) -> str:
    known = [*dict.fromkeys([*views, *_by_origin(views)])]
    if target is None or target in known:
        return f"`${{{inner}}}` has a meaning in `config` alone"
    return (
        f"`${{{inner}}}` names `{target}`, which is no stage of this spec"
        f"{did_you_mean(target, known)} (stages: {', '.join(views)}), and has a meaning in "
        "`config` alone"
    )


def _by_origin(views: Views) -> dict[str, list[str]]:
    """Return the combinations of each stage with a matrix, by its name in the file."""
    found: dict[str, list[str]] = {}
    for name, stage in views.items():
        origin = origin_of(name, stage.keys.get("matrix"))
        if origin:
            found.setdefault(origin, []).append(name)
    return found


def _shell_problems(
    views: Views, document: YamlDocument, name: str, stage: StageView
) -> list[Problem]:
    """Return references in places where they are not replaced."""
    problems = []
    for key in ("shell", *_SHARED_KEYS):
        for path, inner in _found(stage.keys.get(key), ("stages", name, key)):
            if inner.startswith(_AXIS_OF):
                axis = inner.removeprefix(_AXIS_OF)
                what = f"in a shell `${{{inner}}}` is `${axis_variable(axis)}`"
                if key == "environment" or axis not in _axes(stage):
                    what = _no_axis(name, stage, inner)
                problems.append(problem_at(document, path, f"{path_text(path)}: {what}"))
            target = _target(inner, key, views)
            if target is None:
                continue
            message = f"{path_text(path)}: {_config_alone(inner, target, views)}"
            if key == "shell":
                message += f"; here {_shell_variable(target, name, views)}"
            problems.append(problem_at(document, path, message))
    return problems


def _shell_variable(target: str, name: str, views: Views) -> str:
    """Return the shell's alternative, to follow `here` in a message."""
    parents = views[name].parents
    if target == name:
        return "it is `$SLURM_JOBS_OUTPUT_DIR`"
    variable = f"it is `${output_dir_variable(target)}`"
    combinations = _by_origin(views).get(target, ())
    if target in parents or _is_single(combinations, parents):
        return variable
    if combinations:
        example = output_dir_variable(combinations[0])
        return f"each combination has its own, the first `${example}`"
    if target not in views:
        return (
            "the folder of a stage `name` in `after` is `$SLURM_JOBS_NAME_OUTPUT_DIR`; for a "
            "program that replaces it, write `\\$` in double quotes"
        )
    return f"{variable}, which is set if `{name}` comes after `{target}`: name it in `after`"


def _is_single(combinations: Sequence[str], parents: Sequence[str]) -> bool:
    """Check whether a stage comes after exactly one of these, which then has the file's name."""
    return sum(parent in combinations for parent in parents) == 1
