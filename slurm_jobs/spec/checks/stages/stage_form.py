"""Keys of a stage that need or exclude each other. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.configs.output_references import output_dir_variable
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.model import Stage
from slurm_jobs.spec.stage_views import StageView
from slurm_jobs.spec.yaml.document import KeyPath, path_text

FEATURES = re.compile(r"[A-Za-z0-9_.-]+(&[A-Za-z0-9_.-]+)*")
"""Pattern of constraints that can be combined with each of several GPU types."""


def form_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield keys of a stage that need or exclude each other, independent of other problems."""
    by_variable: dict[str, str] = {}
    for name, view in spec.views.items():
        place: KeyPath = ("stages", name)
        first = by_variable.setdefault(output_dir_variable(name), name)
        if first != name:
            message = f"stages `{first}` and `{name}` differ only in case or - and _; rename one"
            yield spec.at(place, message, at_key=True)
        given = {key for key, value in view.keys.items() if value is not None}
        is_mapping = isinstance(spec.document.value["stages"][name], dict)
        if {"run", "shell"} <= given:
            message = f"stage `{name}` has `run` and `shell`; give one of the two"
            yield spec.at((*place, "shell"), message, at_key=True)
        elif not {"run", "shell"} & given and given <= set(Stage.model_fields) and is_mapping:
            message = (
                f"stage `{name}` has neither `run` (a built-in stage, or package.module:function) "
                "nor `shell` (a command); give one of the two"
            )
            yield spec.at(place, message, at_key=True)
        yield from _gpu_problems(spec, view, (*place, "resources"))
        on_resume = view.keys.get("on_resume")
        raises = isinstance(on_resume, dict) and on_resume.get("raise_mem_gb") is not None
        if raises and view.resources.get("mem_gb") is None:
            message = "it raises resources.mem_gb, which the stage does not set; set it"
            yield spec.problem((*place, "on_resume", "raise_mem_gb"), message, at_key=True)
        kinds = view.keys.get("after")
        for parent, kind in kinds.items() if isinstance(kinds, dict) else ():
            if view.run == "consolidate" and kind == "aftercorr":
                message = (
                    f"each task of `{name}` reads what all slices before it made, so `aftercorr` "
                    "would start it too early; write afterok"
                )
                yield spec.at((*place, "after", parent), message)


def _gpu_problems(spec: CheckedSpec, view: StageView, place: KeyPath) -> Iterator[Problem]:
    types, options = view.resources.get("gpu"), view.resources.get("slurm")
    if types and view.resources.get("gpus_per_node", 0) == 0:
        message = f"{path_text(place)}: `gpu` names a type, but gpus_per_node is 0; say how many"
        yield spec.at((*place, "gpu"), message, at_key=True)
    constraint = options.get("constraint") if isinstance(options, dict) else None
    is_plain = not isinstance(constraint, str) or FEATURES.fullmatch(constraint)
    if isinstance(types, list) and len(types) > 1 and not is_plain:
        message = (
            "with several types of GPU it can only be names of features joined by &, found "
            f"`{constraint}`"
        )
        yield spec.problem((*place, "slurm", "constraint"), message)
