"""References to stages and matrix axes: where they are allowed, what they may name.

In a config `${train.output_dir}` is replaced, elsewhere it is not. In bash it is a "bad
substitution": the line fails with exit code 1, hours later, and bash continues with the next
line. To bash, `${my-first.output_dir}` is `$my` or else the text `first.output_dir`. PURE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.formats.configs.output_references import (
    REFERENCE,
    UNESCAPED_REFERENCE,
    output_dir_variable,
    referenced_stage,
    stage_that_begins,
)
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.combinations import axis_variable, is_member, origin_of
from slurm_jobs.spec.graph import ancestors
from slurm_jobs.spec.marked_paths import references
from slurm_jobs.spec.stage_views import StageView, Views
from slurm_jobs.spec.yaml.document import KeyPath

_AXIS_OF = "matrix."
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_READ_BY_BASH = ("shell", "setup")
_SHARED_KEYS = ("setup", "environment")
"""Keys, of a stage and of the whole spec, that become lines of the batch script. A value of
`environment` is kept unchanged, so a reference without a stage in it may belong to the user's
program."""


def reference_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield references to unknown names, or in places where they are not replaced."""
    values = spec.document.value if isinstance(spec.document.value, dict) else {}
    for key in _SHARED_KEYS:
        for path, inner, target in _shell_references(values.get(key), (key,), spec.views):
            if inner.startswith(_AXIS_OF) or target is not None:
                yield spec.problem(path, _config_alone(inner, target, spec.views))
    for name, stage in spec.views.items():
        yield from _config_problems(spec, name, stage)
        for key in ("shell", *_SHARED_KEYS):
            place: KeyPath = ("stages", name, key)
            for path, inner, target in _shell_references(stage.keys.get(key), place, spec.views):
                if inner.startswith(_AXIS_OF):
                    axis = inner.removeprefix(_AXIS_OF)
                    message = (
                        f"write `${axis_variable(axis)}` here: `${{{inner}}}` is replaced in "
                        "`config` only"
                    )
                    if key == "environment" or axis not in _axes(stage):
                        message = _no_axis(name, stage, inner)
                    yield spec.problem(path, message)
                elif target is not None:
                    message = _config_alone(inner, target, spec.views)
                    if key == "shell":
                        message += f"; here {_shell_variable(target, name, spec.views)}"
                    yield spec.problem(path, message)


def _config_problems(spec: CheckedSpec, name: str, stage: StageView) -> Iterator[Problem]:
    known = ancestors(spec.views, name)
    paths = {item.path for item in spec.marked}
    for path, inner in references(stage.config or {}, ("stages", name, "config")):
        target = referenced_stage(inner)
        # In a path `${NAME}` is an environment variable; an unknown one is a problem of the path.
        if path in paths and _VARIABLE.fullmatch(inner) and inner not in spec.views:
            continue
        if inner.startswith(_AXIS_OF):
            yield spec.problem(path, _no_axis(name, stage, inner))
        elif target is None:
            message = (
                f"`${{{inner}}}` is not a reference; `${{stage.output_dir}}` and "
                "`${matrix.AXIS}` are the only forms (in a path, `$NAME` and `${NAME}` are "
                "environment variables)"
            )
            yield spec.problem(path, message)
        elif target not in known:
            message = (
                f"`${{{inner}}}` names `{target}`, which does not come before `{name}`"
                f"{did_you_mean(target, known)} (before it: {', '.join(known) or 'nothing'})"
            )
            yield spec.problem(path, message)


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


def _shell_references(
    values: object, path: KeyPath, views: Views
) -> Iterator[tuple[KeyPath, str, str | None]]:
    r"""Yield place, text and stage of references in shell text or an environment.

    In a shell `\${...}` is plain text, and a reference to an unknown stage is a mistake too. The
    stage is None if the text needs no message.
    """
    in_shell = path[-1] in _READ_BY_BASH
    for place, inner in references(values, path, UNESCAPED_REFERENCE if in_shell else REFERENCE):
        target = None if inner.startswith(_AXIS_OF) else stage_that_begins(inner)
        yield place, inner, target if in_shell or target in views else None


def _config_alone(inner: str, target: str | None, views: Views) -> str:
    known = [*dict.fromkeys([*views, *_by_origin(views)])]
    if target is None or target in known:
        return f"`${{{inner}}}` is replaced in `config` only"
    return (
        f"`${{{inner}}}` names `{target}`, which is not a stage of this spec"
        f"{did_you_mean(target, known)} (stages: {', '.join(views)}), and is replaced in "
        "`config` only"
    )


def _by_origin(views: Views) -> dict[str, list[str]]:
    """Return the combinations of each stage with a matrix, by its name in the file."""
    members: dict[str, list[str]] = {}
    for name, stage in views.items():
        origin = origin_of(name, stage.keys.get("matrix"))
        if origin:
            members.setdefault(origin, []).append(name)
    return members


def _shell_variable(target: str, name: str, views: Views) -> str:
    """Return the shell's alternative, to follow `here` in a message."""
    if target == name:
        return "it is `$SLURM_JOBS_OUTPUT_DIR`"
    parents = views[name].parents
    variable = f"it is `${output_dir_variable(target)}`"
    combinations = _by_origin(views).get(target, ())
    # A stage after exactly one of the combinations knows that by the file's name.
    if target in parents or sum(parent in combinations for parent in parents) == 1:
        return variable
    if combinations:
        example = output_dir_variable(combinations[0])
        return f"each combination has its own, the first `${example}`"
    if target not in views:
        return (
            "the folder of a stage `name` in `after` is `$SLURM_JOBS_NAME_OUTPUT_DIR`; if another "
            "program replaces it, write `\\$` in double quotes"
        )
    return f"{variable}, which is set if `{name}` comes after `{target}`: name it in `after`"
