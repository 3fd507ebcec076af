"""Memory and time that a resume requests for single slices of a stage.

`--set stages.embed[7,13].resources.mem_gb=16` is a request for two slices; the run keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from pydantic import ValidationError

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.files import read_json
from slurm_jobs.base.index_ranges import parse_ranges, ranges_text
from slurm_jobs.plan.planned import Plan, PlannedStage, SliceRequest
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_values import StageSummary, stages_named
from slurm_jobs.spec.model import Resources
from slurm_jobs.spec.overrides.apply import source_of
from slurm_jobs.spec.yaml.reader import read_yaml

_OF_SLICES = re.compile(r"\s*stages\.([^.\[\]=]+)\[([^\]=]*)\]\.([^=]*)=(.*)", re.DOTALL)
_KEYS = ("mem_gb", "timeout_min")
"""Keys of `resources` that slices may have of their own."""


def plain_overrides(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that set a value of the spec, for all slices."""
    return [override for override in overrides if not _OF_SLICES.fullmatch(override)]


def all_slice_overrides(
    paths: RunPaths, overrides: Sequence[str], stages: Sequence[PlannedStage]
) -> tuple[str, ...]:
    """Return the overrides for single slices that the run has, and those among `overrides`.

    An earlier one is dropped if the spec no longer has its stage or slices.
    """
    kept = []
    for override in read_json(paths.spec_origin).get("slice_overrides", []):
        with suppress(InputError):
            slice_requests([override], stages)
            kept.append(override)
    return (*kept, *(override for override in overrides if _OF_SLICES.fullmatch(override)))


def slice_requests(
    overrides: Sequence[str], stages: Sequence[PlannedStage | StageSummary]
) -> dict[str, dict[int, SliceRequest]]:
    """Return what the overrides request, by stage and slice; later ones have priority.

    Raises:
        InputError: there is no such stage, slice or key, or its value is not valid.
    """
    origins = {stage.name: stage.origin for stage in stages}
    num_slices = {stage.name: stage.num_slices for stage in stages}
    requests: dict[str, dict[int, SliceRequest]] = {}
    for override in overrides:
        where = f"{source_of(override)}: "
        match = _OF_SLICES.fullmatch(override)
        assert match is not None
        called, ranges, key, text = match.groups()
        request = _request(where, key, text)
        for name in stages_named(called, origins, where=where):
            own = requests.setdefault(name, {})
            for index in _slices(where, name, ranges, num_slices[name]):
                known = own.get(index, SliceRequest())
                own[index] = replace(
                    known,
                    mem_gb=known.mem_gb if request.mem_gb is None else request.mem_gb,
                    timeout_min=(
                        known.timeout_min if request.timeout_min is None else request.timeout_min
                    ),
                )
    return requests


def _slices(where: str, stage: str, ranges: str, num_slices: int) -> tuple[int, ...]:
    try:
        return parse_ranges(ranges, below=num_slices)
    except ValueError as error:
        message = f"{where}`{stage}` has the slices 0 to {num_slices - 1}, such as {stage}[0,2-3]"
        raise InputError(message) from error


def _request(where: str, key: str, text: str) -> SliceRequest:
    section, _, name = key.strip().partition(".")
    if section != "resources" or name not in _KEYS:
        message = (
            f"{where}single slices can have their own {' and '.join(_KEYS)} under `resources`; "
            "other values are the same for all slices of a stage"
        )
        raise InputError(message)
    try:
        resources = Resources.model_validate({name: read_yaml(text, where).value})
    except ValidationError as error:
        message = f"{where}{error.errors()[0]['msg']}"
        raise InputError(message) from error
    value = getattr(resources, name)
    return SliceRequest(mem_gb=value) if name == "mem_gb" else SliceRequest(timeout_min=value)


def with_kinds(
    own: Mapping[str, Mapping[int, SliceRequest]], kinds: Mapping[str, Mapping[int, str]]
) -> dict[str, dict[int, SliceRequest]]:
    """Return the requests together with the GPU types that slices are bound to."""
    requests = {stage: dict(slices) for stage, slices in own.items()}
    for stage, slices in kinds.items():
        known = requests.setdefault(stage, {})
        for index, kind in slices.items():
            known[index] = replace(known.get(index, SliceRequest()), gpu_kept=kind)
    return requests


def request_texts(plan: Plan, own: Mapping[str, Mapping[int, SliceRequest]]) -> list[str]:
    """Return in words what single slices of the plan's jobs request."""
    texts: list[str] = []
    for job in plan.jobs:
        mine = own.get(job.stage, {})
        asked = [index for index in job.slices if index in mine]
        if asked:
            request = mine[asked[0]]
            memory = [] if request.mem_gb is None else [f"mem_gb {request.mem_gb:g}"]
            limit = [] if request.timeout_min is None else [f"timeout_min {request.timeout_min:g}"]
            which = f"slice {asked[0]}" if len(asked) == 1 else f"slices {ranges_text(asked)}"
            texts.append(f"{job.stage}: {', '.join([*memory, *limit])} for {which}")
    return texts
