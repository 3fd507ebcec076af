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

    Attempts at other work (another fingerprint, or before it was asked for again) do not count.
    Read by name, one after the other, and not by listing a folder that ten thousand tasks write to.
    """
    newest: dict[str, Any] = {"started_unix_s": 0.0, "gpu": ""}
    for slice_index in slices:
        for attempt in itertools.count(1):
            path = paths.attempt(stage, slice_index, attempt)
            if not path.exists():
                break
            record = read_json(path)
            work = (record["fingerprint"], record.get("num_again", 0))
            is_same = work == (fingerprint, num_again.get(slice_index, 0)) and record.get("gpu")
            if is_same and record["started_unix_s"] > newest["started_unix_s"]:
                newest = record
    return str(newest["gpu"])
