"""Notes on resources that a stage does not use, or gets differently from Slurm. PURE.

They are noted, not refused: a partition may give no node without a GPU, and `--set` may try a
shorter time limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.resources import lead_within
from slurm_jobs.spec.model import RunSpec, Stage
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument


def resource_notes(
    spec: RunSpec, configs: Mapping[str, Any], document: YamlDocument
) -> Iterator[Problem]:
    """Yield a note for each such key of a stage's resources, at its place.

    Args:
        spec: without problems.
        configs: of its built-in stages.
        document: for places.
    """
    for name, stage in spec.stages.items():
        place: Path = ("stages", name, "resources")
        if stage.run == "train" and configs[name].device == "cpu":
            yield from _idle_gpus(stage, place, document)
        yield from _short_lead(stage, place, document)


def _idle_gpus(stage: Stage, place: Path, document: YamlDocument) -> Iterator[Problem]:
    num_gpus, path = stage.resources.gpus_per_node, (*place, "gpus_per_node")
    if num_gpus:
        message = (
            f"{path_text(path)}: `{num_gpus}` has no effect but to keep GPUs from others: the "
            "config says `device: cpu`; set `device: cuda`, or leave it out"
        )
        yield problem_at(document, path, message)


def _short_lead(stage: Stage, place: Path, document: YamlDocument) -> Iterator[Problem]:
    resources, path = stage.resources, (*place, "signal_lead_s")
    if "signal_lead_s" not in resources.model_fields_set:
        return
    slices_per_task = stage.array.slices_per_task if stage.array else 1
    timeout_min, asked_s = resources.timeout_min * slices_per_task, resources.signal_lead_s
    lead_s = lead_within(timeout_min, asked_s)
    if lead_s < asked_s:
        message = (
            f"{path_text(path)}: of the time limit ({timeout_min:g} min) it can be half: the ranks "
            f"are asked to stop {lead_s} s before its end, not `{asked_s}`; give {lead_s} or less, "
            "or raise timeout_min"
        )
        yield problem_at(document, path, message)
