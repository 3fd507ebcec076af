"""Preflight on every rank: check, agree, report, and fail together."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from pipeline.models.attention_kernels.shared_keys import repeat_shared_keys
from pipeline.models.data_facts import DataFacts
from pipeline.train.attention.kernel_selection import (
    lengths_are_fixed,
)
from pipeline.train.checkpoints.lasting_config import fingerprint
from pipeline.train.device.card_support import card_problem
from pipeline.train.device.device_facts import DeviceFacts, read_device
from pipeline.train.job import Job
from pipeline.train.phase import Phase, phases_of
from pipeline.train.preflight.library_check import library_problem
from pipeline.train.preflight.rank_checks import RankChecks
from pipeline.train.preflight.rank_comparison import RankFacts, compare_ranks, name_ranks
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.files import write_json_atomic

log = logging.getLogger(__name__)

PREFLIGHT_NAME = "preflight.json"


def preflight(
    job: Job, phases: Sequence[Phase], folders: Sequence[Path], facts: DataFacts
) -> dict[str, Any]:
    """Check in seconds whether this training can run on these ranks; a collective.

    Runs before anything is staged in or read. Sets how this process computes attention. `facts` are
    those of the first data set.

    Returns:
        Findings, as in `preflight.json` of the output folder; empty on ranks other than 0.

    Raises:
        StageConfigError: on all ranks, naming ranks, reason and remedy.
    """
    begun_s = time.monotonic()
    with job.spans.span("preflight"):
        device = read_device(job.rank_device.device)
        warnings = _compare(job, device)
        checks = RankChecks(job, phases, folders, facts, device)
        if device.type == "cuda":
            fixed = lengths_are_fixed(checks.infos, checks.batching_kinds)
            torch.backends.cuda.enable_cudnn_sdp(fixed)
        problem = None
        try:
            checks.run()
        except StageConfigError as error:
            problem = str(error)
        _fail_together(job, problem)
        repeat_shared_keys(on=checks.repeats_keys)
        by_rank = job.ranks.gather([warning for warning in checks.warnings if warning])
        if job.ranks.rank != 0:
            return {}
        warnings = list(dict.fromkeys([*warnings, *(each for rank in by_rank for each in rank)]))
        values = {
            "device": device.name or device.type,
            "capability": device.capability,
            "torch": device.torch_version,
            "precision": job.rank_device.precision,
            "num_compute_threads": job.rank_device.num_compute_threads,
            "card_bytes": device.total_bytes,
            **checks.values,
            "warnings": warnings,
            "duration_s": time.monotonic() - begun_s,
        }
        write_json_atomic(job.context.output_dir / PREFLIGHT_NAME, values)
        log.info(
            "preflight: %s, %s, torch %s; attention: %s; a rank holds at least %.2f GB%s",
            device,
            job.rank_device.precision,
            device.torch_version,
            ", ".join(checks.notes),
            checks.values["memory"]["least_bytes"] / 1e9,
            "" if device.total_bytes is None else f" of {device.total_bytes / 1e9:.1f} GB",
        )
        for warning in warnings:
            log.warning("preflight: %s", warning)
        return values


def _compare(job: Job, device: DeviceFacts) -> list[str]:
    """Return warnings, on rank 0.

    Raises:
        StageConfigError: on all ranks; one has no code for its card, lacks a library, or they
            are not alike.
    """
    _fail_together(job, card_problem(device, job.config) or library_problem(phases_of(job.config)))
    versions = {"torch": device.torch_version}
    for name in ("transformers", "accelerate", "peft", "bitsandbytes"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    mine = RankFacts(
        node_name=job.context.node_name,
        device=device,
        versions=versions,
        precision=job.rank_device.precision,
        num_compute_threads=job.rank_device.num_compute_threads,
        config=fingerprint(asdict(job.config)),
    )
    by_rank = job.ranks.gather(mine)
    problems, warnings = job.ranks.from_main(compare_ranks(by_rank) if by_rank else None)
    if problems:
        raise StageConfigError("; ".join(problems))
    return list(warnings)


def _fail_together(job: Job, problem: str | None) -> None:
    """Raise on all ranks if one has a problem; a collective."""
    by_rank = job.ranks.from_main(job.ranks.gather((problem, job.context.node_name)))
    ranks = [rank for rank, (text, _) in enumerate(by_rank) if text]
    if ranks:
        nodes = [node for _, node in by_rank]
        where = f" ({name_ranks(ranks, nodes, '{} on {}')})" if len(ranks) < len(by_rank) else ""
        message = f"{by_rank[ranks[0]][0]}{where}"
        raise StageConfigError(message)
