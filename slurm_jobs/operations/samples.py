"""Samples of a data set, its composition, and problems of its labels and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.errors import InputError
from slurm_jobs.operations.entry_point import OnProgress, call_entry_point
from slurm_jobs.operations.verify import DatasetPlace, num_read_threads, python_of
from slurm_jobs.report.model.statistics import DataStatistics, read_statistics
from slurm_jobs.samples.model import ShownSample, read_sample


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Which samples to show, and how many to audit."""

    num: int
    """Number of samples from the start of the index, which is in random order."""
    keys: tuple[int, ...] = ()
    """Keys of samples to show instead."""
    random_seed: int | None = None
    """Seed to draw the `num` samples."""
    limit: int | None = None
    """Number of samples to audit, from the first; None for all."""
    with_pictures: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplesFound:
    """Samples and audit of a data set."""

    place: DatasetPlace
    num_samples: int
    num_shards: int
    num_audited: int
    samples: tuple[ShownSample, ...]
    statistics: DataStatistics | None
    findings: tuple[Mapping[str, str], ...]
    """Each with `kind`, `message`, `key`, `shard`; only the first if there are very many."""
    num_findings: Mapping[str, int]
    """Number of all findings by kind."""
    values: Mapping[str, Any]
    """Answer as JSON values."""


def look_at_samples(
    place: DatasetPlace,
    wanted: Wanted,
    *,
    python: str | None,
    num_threads: int | None,
    on_progress: OnProgress,
) -> SamplesFound:
    """Read, decode and audit, in the Python of the stage that made the data set.

    Raises:
        InputError: the data set has no sample with a key.
        InputError, RunFailedError, FileError: see `call_entry_point`.
    """
    found = call_entry_point(
        "pipeline.samples:run",
        {
            "folder": str(place.folder),
            "num": wanted.num,
            "keys": list(wanted.keys),
            "random_seed": wanted.random_seed,
            "limit": wanted.limit,
            "with_pictures": wanted.with_pictures,
            "num_threads": num_threads or num_read_threads(),
        },
        python=python_of(place, python),
        on_progress=on_progress,
    )
    _refuse_unknown(place, found["unknown_keys"])
    return _read(place, found)


def _read(place: DatasetPlace, found: Mapping[str, Any]) -> SamplesFound:
    samples = tuple(read_sample(sample, found["image_token_id"]) for sample in found["samples"])
    return SamplesFound(
        place=place,
        num_samples=found["num_samples"],
        num_shards=found["num_shards"],
        num_audited=found["num_audited"],
        samples=samples,
        statistics=read_statistics(found["statistics"]),
        findings=tuple(found["findings"]),
        num_findings=found["num_findings"],
        values=found,
    )


def _refuse_unknown(place: DatasetPlace, keys: Sequence[str]) -> None:
    if keys:
        message = (
            f"{place.folder}: no sample of key {', '.join(keys)}; a key is the number of a row of "
            f"the manifest, from 0, and rows that became none are in "
            f"{place.folder / 'rejects.jsonl'}"
        )
        raise InputError(message)
