"""GPU type on which work was begun, from its attempt records."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from slurm_jobs.base.files import read_json
from slurm_jobs.run_folder.paths import RunPaths


def kind_begun_on(
    paths: RunPaths,
    stage: str,
    fingerprint: str,
    num_again: Mapping[int, int],
    slices: Iterable[int],
) -> str:
    """Return the GPU type of the newest attempt at these slices; empty if none is recorded.

    Attempts of a slice are ordered by their numbers, not by the clocks of their nodes. Attempts
    with another fingerprint, or from before the slice was requested again, do not count. Records
    are opened by name, because listing a folder that ten thousand tasks write to is slow.
    """
    begun: list[dict[str, Any]] = []
    for slice_index in slices:
        newest = None
        for attempt in itertools.count(1):
            path = paths.attempt(stage, slice_index, attempt)
            if not path.exists():
                break
            record = read_json(path)
            work = (record["fingerprint"], record.get("num_again", 0))
            if work == (fingerprint, num_again.get(slice_index, 0)) and record.get("gpu"):
                newest = record
        if newest is not None:
            begun.append(newest)
    # Attempts of different slices have no other order than their nodes' clocks. A wrong order picks
    # a type on which another of these slices was begun.
    last = max(begun, key=lambda record: record["started_unix_s"], default=None)
    return "" if last is None else str(last["gpu"])
