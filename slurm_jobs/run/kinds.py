"""The type of GPU that work was begun on, from its attempt records."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from slurm_jobs.common.files import read_json
from slurm_jobs.run.paths import RunPaths


def kind_begun_on(
    paths: RunPaths,
    stage: str,
    fingerprint: str,
    num_again: Mapping[int, int],
    slices: Iterable[int],
) -> str:
    """The type that the newest attempt at these slices had; empty if none of them says.

    The attempts of a slice are ordered by their numbers, not by the clocks of their nodes.
    Attempts at other work (another fingerprint, or before it was asked for again) do not count.
    Read by name, one after the other, and not by listing a folder that ten thousand tasks write to.
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
    # Attempts of different slices have no other order than their nodes' clocks. A wrong one picks
    # a type on which another of these slices was begun.
    last = max(begun, key=lambda record: record["started_unix_s"], default=None)
    return "" if last is None else str(last["gpu"])
