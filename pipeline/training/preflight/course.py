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

from pipeline.data.info import read_dataset_info
from pipeline.models import DataFacts
from pipeline.models.shared_keys import repeat_shared_keys
from pipeline.training.accelerate_config import read_accelerate_file
from pipeline.training.attention_choice import lengths_are_fixed
from pipeline.training.fingerprint import fingerprint
from pipeline.training.job import Job
from pipeline.training.phases import Phase, phases_of
from pipeline.training.preflight.alike import RankFacts, compare_ranks
from pipeline.training.preflight.device_facts import DeviceFacts, read_device
from pipeline.training.preflight.libraries import library_problem
from pipeline.training.preflight.looking import Findings, Planned, look
from pipeline.training.preflight.sharing import sharing_of
from pipeline.training.preflight.wheel import card_problem
from pipeline.training.strategies import check_single
from pipeline.training.strategies.mesh import Place
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.files import write_json_atomic
from slurm_jobs.common.ranges import ranges_text

log = logging.getLogger(__name__)

PREFLIGHT_NAME = "preflight.json"
_LIBRARIES = ("transformers", "accelerate", "peft", "bitsandbytes")


def preflight(
    job: Job, phases: Sequence[Phase], folders: Sequence[Path], facts: DataFacts
) -> dict[str, Any]:
    """Check in seconds whether this training can run on these ranks; a collective.

    Runs before anything is staged in or read. Sets how this process computes attention.

    Args:
        job: Job of this rank.
        phases: Phases of the training.
        folders: Their data sets.
        facts: Facts of the first of them.

    Returns:
        Findings, as in `preflight.json` of the output folder; empty on ranks other than 0.

    Raises:
        StageConfigError: on all ranks, naming ranks, reason and remedy.
    """
    begun_s = time.monotonic()
    with job.spans.span("preflight"):
        device = read_device(job.workplace.device)
        warnings = _compare(job, device)
        planned = _plan(job, phases, folders, facts)
        if device.type == "cuda":
            fixed = lengths_are_fixed(planned.infos, planned.batching_kinds)
            torch.backends.cuda.enable_cudnn_sdp(fixed)
        findings, problem = None, None
        try:
            findings = look(job, planned, device)
        except StageConfigError as error:
            problem = str(error)
        _fail_together(job, problem)
        assert findings is not None
        repeat_shared_keys(on=findings.repeats_keys)
        told = job.ranks.gather(findings.warnings)
        if job.ranks.rank != 0:
            return {}
        warnings = list(dict.fromkeys([*warnings, *(each for rank in told for each in rank)]))
        values = _describe(job, device, findings, warnings, time.monotonic() - begun_s)
        write_json_atomic(job.context.output_dir / PREFLIGHT_NAME, values)
        _say(values, device, findings)
        return values


def _compare(job: Job, device: DeviceFacts) -> list[str]:
    """Return warnings, on rank 0.

    Raises:
        StageConfigError: on all ranks; one has no code for its card, lacks a library, or they
            are not alike.
    """
    problem = card_problem(device, job.config) or library_problem(phases_of(job.config))
    _fail_together(job, problem)
    versions = dict[str, str]()
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    mine = RankFacts(
        node_name=job.context.node_name,
        device=device,
        versions={"torch": device.torch_version, **versions},
        precision=job.workplace.precision,
        num_compute_threads=job.workplace.num_compute_threads,
        config=fingerprint(asdict(job.config)),
    )
    by_rank = job.ranks.gather(mine)
    found = job.ranks.from_main(compare_ranks(by_rank) if by_rank else None)
    if found.problems:
        raise StageConfigError("; ".join(found.problems))
    return list(found.warnings)


def _plan(job: Job, phases: Sequence[Phase], folders: Sequence[Path], facts: DataFacts) -> Planned:
    config, context, ranks = job.config, job.context, job.ranks
    check_single(config, ranks.num_ranks)
    file = read_accelerate_file(config, ranks, num_nodes=context.num_nodes)
    here = Place(node_name=context.node_name, local_rank=context.local_rank)
    places = ranks.from_main(ranks.gather(here))
    infos = {folder: read_dataset_info(folder) for folder in dict.fromkeys(folders)}
    return Planned(
        phases=phases,
        folders=folders,
        infos=[infos[folder] for folder in folders],
        facts=facts,
        file=file,
        sharing=sharing_of(config, file, places),
    )


def _fail_together(job: Job, problem: str | None) -> None:
    """Raise on all ranks if one has a problem; a collective."""
    told = job.ranks.from_main(job.ranks.gather((problem, job.context.node_name)))
    ranks = [rank for rank, (each, _) in enumerate(told) if each]
    if ranks:
        first, _ = told[ranks[0]]
        nodes = ", ".join(dict.fromkeys(told[rank][1] for rank in ranks))
        plural = "s" if len(ranks) > 1 else ""
        where = f" (rank{plural} {ranges_text(ranks)} on {nodes})"
        where = where if len(ranks) < len(told) else ""
        message = f"{first}{where}"
        raise StageConfigError(message)


def _describe(
    job: Job, device: DeviceFacts, findings: Findings, warnings: Sequence[str], duration_s: float
) -> dict[str, Any]:
    return {
        "device": device.name or device.type,
        "capability": device.capability,
        "torch": device.torch_version,
        "precision": job.workplace.precision,
        "num_compute_threads": job.workplace.num_compute_threads,
        "card_bytes": device.total_bytes,
        **findings.values,
        "warnings": list(warnings),
        "duration_s": duration_s,
    }


def _say(values: dict[str, Any], device: DeviceFacts, findings: Findings) -> None:
    memory = values["memory"]
    room = "" if device.total_bytes is None else f" of {device.total_bytes / 1e9:.1f} GB"
    log.info(
        "preflight: %s, %s, torch %s; attention: %s; a rank holds at least %.2f GB%s",
        device,
        values["precision"],
        device.torch_version,
        ", ".join(findings.notes),
        memory["least_bytes"] / 1e9,
        room,
    )
    for warning in values["warnings"]:
        log.warning("preflight: %s", warning)
