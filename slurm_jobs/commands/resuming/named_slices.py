"""Slices of a run that the user names: `STAGE`, or `STAGE:0-3,7`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.index_ranges import parse_ranges
from slurm_jobs.plan.planned import PlannedStage
from slurm_jobs.plan.stage_dependencies import Slices
from slurm_jobs.run_folder.run_values import stages_named


def slices_named(texts: Sequence[str], stages: Sequence[PlannedStage]) -> dict[str, Slices]:
    """Return the slices that `STAGE` or `STAGE:0-3,7` select, by stage; see `stages_named`.

    Raises:
        InputError: there is no such stage or slice.
    """
    numbers = {stage.name: stage.num_slices for stage in stages}
    origins = {stage.name: stage.origin for stage in stages}
    chosen: dict[str, Slices] = {}
    for text in texts:
        called, colon, ranges = text.partition(":")
        for name in stages_named(called, origins, where=f"--again {text}: "):
            slices: Sequence[int] = () if colon else range(numbers[name])
            with suppress(ValueError):
                slices = slices or parse_ranges(ranges, below=numbers[name])
            if not slices:
                last = numbers[name] - 1
                message = f"--again {text}: `{name}` has the slices 0 to {last}: {name}:0-{last}"
                raise InputError(message)
            chosen[name] = chosen.get(name, frozenset()) | frozenset(slices)
    return chosen
