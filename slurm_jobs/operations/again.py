"""Slices that the user requests to run again, complete or not."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.common.errors import InputError
from slurm_jobs.common.ranges import parse_ranges
from slurm_jobs.dependencies import Slices
from slurm_jobs.plan import PlannedStage
from slurm_jobs.run.model import stages_named


def slices_named(texts: Sequence[str], stages: Sequence[PlannedStage]) -> dict[str, Slices]:
    """Return the slices that `STAGE` or `STAGE:0-3,7` select, by stage; see `stages_named`.

    Raises:
        InputError: there is no such stage or slice.
    """
    known = {stage.name: stage for stage in stages}
    origins = {stage.name: stage.origin for stage in stages}
    found: dict[str, Slices] = {}
    for text in texts:
        called, _, ranges = text.partition(":")
        for name in stages_named(called, origins, where=f"--again {text}: "):
            chosen = _slices_of(known[name], text, ranges)
            found[name] = found.get(name, frozenset()) | chosen
    return found


def _slices_of(stage: PlannedStage, text: str, ranges: str) -> Slices:
    name, number = stage.name, stage.num_slices
    try:
        chosen = parse_ranges(ranges, below=number) if ":" in text else tuple(range(number))
    except ValueError:
        chosen = ()
    if not chosen:
        message = f"--again {text}: `{name}` has the slices 0 to {number - 1}, as {name}:0-3,7"
        raise InputError(message)
    return frozenset(chosen)
