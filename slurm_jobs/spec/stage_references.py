"""References to stages and matrix axes: where they are allowed, what they may name. PURE.

In a config `${train.output_dir}` is replaced, elsewhere it is not. In bash it is a "bad
substitution": the line fails with exit code 1, hours later, and bash continues with the next line.
To bash, `${my-first.output_dir}` is `$my` or else the text `first.output_dir`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from slurm_jobs.common.errors import Problem, did_you_mean
from slurm_jobs.common.references import (
    REFERENCE,
    UNESCAPED_REFERENCE,
    output_dir_variable,
    referenced_stage,
    stage_that_begins,
)
from slurm_jobs.spec.graph import StageView, Views, ancestors
from slurm_jobs.spec.markers import references
from slurm_jobs.spec.matrices.matrix_names import axis_variable, is_member, origin_of
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_AXIS_OF = "matrix."
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_READ_BY_BASH = ("shell", "setup")
_SHARED_KEYS = ("setup", "environment")
"""Keys, of a stage and of the whole spec, that become lines of the batch script. A value of
`environment` is kept unchanged, so a reference without a stage in it may belong to the user's
program."""


def reference_problems(
    views: Views, document: YamlDocument, paths: Collection[Path] = ()
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
    paths: Collection[Path],
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


def _found(values: object, path: Path) -> list[tuple[Path, str]]:
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
