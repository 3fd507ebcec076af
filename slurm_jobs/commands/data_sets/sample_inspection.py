"""Samples of a data set, its composition, and problems of its labels and images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.data_sets.dataset_choice import DatasetPlace, num_read_threads, python_of
from slurm_jobs.commands.data_sets.stage_python import OnProgress, call_entry_point
from slurm_jobs.report.samples.sample_values import ShownSample, read_sample
from slurm_jobs.report.values.data_statistics import DataStatistics, read_statistics


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleChoice:
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


def inspect_samples(
    place: DatasetPlace,
    wanted: SampleChoice,
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
    values = call_entry_point(
        "pipeline.tools.show_samples:run",
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
    keys = values["unknown_keys"]
    if keys:
        message = (
            f"{place.folder}: no sample of key {', '.join(keys)}; a key is the number of a row of "
            f"the manifest, from 0, and rows that became none are in "
            f"{place.folder / 'rejects.jsonl'}"
        )
        raise InputError(message)
    return SamplesFound(
        place=place,
        num_samples=values["num_samples"],
        num_shards=values["num_shards"],
        num_audited=values["num_audited"],
        samples=tuple(read_sample(s, values["image_token_id"]) for s in values["samples"]),
        statistics=read_statistics(values["statistics"]),
        findings=tuple(values["findings"]),
        num_findings=values["num_findings"],
        values=values,
    )
