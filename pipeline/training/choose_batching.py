"""`batching.kind: auto`: measures whether packed rows or batches of similar lengths are faster.

Packing saves padding. With a dense mask, attention costs the square of the row instead of the
samples' squares. Which effect is larger depends on model, lengths and kernel, so both are tried
on the data. The choice is stored next to the checkpoints, because the order of samples depends
on it.

With `num_microbatches: auto` each kind is tried with as few microbatches as fit in memory: the
comparison uses the settings of the training.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pipeline.data.reader import BatchReader
from pipeline.training.batching import plan_reading, read_work_model
from pipeline.training.microbatch_search import NoRoomError
from pipeline.training.microbatches import settle_microbatches
from pipeline.training.trial import Trial, leaving_no_trace, time_step
from slurm_jobs.common.files import write_json_atomic
from slurm_jobs.common.stage_config.train import TrainConfig

log = logging.getLogger(__name__)

CHOICE_NAME = "batching.json"
_KINDS: tuple[Literal["grouped", "packed"], ...] = ("grouped", "packed")
_NUM_TRIALS = 3
"""Steps of each kind that are timed, alternating, after one warm-up step of each."""


def choose_batching(trial: Trial, folder: Path) -> TrainConfig:
    """Return the config with the chosen kind of batching; equal on every rank.

    `folder` stores the choice. It is measured again if the model, the data or the batches
    change; then no checkpoint can be continued either. Devices, precision, strategy and the
    number of ranks also affect speed, but do not cause a new choice: training can continue from
    its checkpoints with others, and these have one order of samples.
    """
    config = trial.config
    if config.batching.kind != "auto":
        return config
    key = json.loads(json.dumps(trial.describe()))
    file = folder / CHOICE_NAME
    kind = trial.ranks.from_main(_read_choice(file, key) if trial.ranks.rank == 0 else None)
    if kind is None:
        with leaving_no_trace(trial.workplace.device):
            rates = _measure(trial, folder)
        kind = max(rates, key=rates.__getitem__)
        if trial.ranks.rank == 0:
            write_json_atomic(file, {"key": key, "kind": kind, "tokens_per_s": rates})
            log.info(
                "batching: auto takes %s (%s)",
                kind, ", ".join(f"{name} {rate:,.0f} tokens/s" for name, rate in rates.items()),
            )  # fmt: skip
    return replace(config, batching=replace(config.batching, kind=kind))


def _read_choice(file: Path, key: dict[str, Any]) -> str | None:
    try:
        kept = json.loads(file.read_bytes())
        return kept["kind"] if kept["key"] == key and kept["kind"] in _KINDS else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        log.warning("%s is damaged (%r): the kinds of batching are measured again", file, error)
        return None


def _measure(trial: Trial, folder: Path) -> dict[str, float]:
    """Return tokens per second of all ranks without padding, by kind: the fastest trial of each.

    Raises:
        NoRoomError: `num_microbatches: auto` has no room for either kind.
    """
    readers: dict[str, BatchReader] = {}
    refused: NoRoomError | None = None
    try:
        for kind in _KINDS:
            try:
                readers[kind] = _reader(trial, kind, folder)
            except NoRoomError as error:
                refused = error
                if trial.ranks.rank == 0:
                    log.info("batching: auto cannot use %s: %s", kind, error)
        if refused is not None and not readers:
            raise refused
        rates: dict[str, list[float]] = {kind: [] for kind in readers}
        for number in range(1 + _NUM_TRIALS):
            for kind, reader in readers.items():
                batches = next(reader)
                trial.ranks.barrier()
                spent_s = time_step(batches, **trial.way)
                tokens, seconds = trial.ranks.sums([sum(b.num_tokens for b in batches), spent_s])
                if number:
                    rates[kind].append(tokens / (seconds / trial.ranks.num_ranks))
    finally:
        for reader in readers.values():
            reader.close()
    return {kind: max(found) for kind, found in rates.items()}


def _reader(trial: Trial, kind: Literal["grouped", "packed"], folder: Path) -> BatchReader:
    config = replace(trial.config, batching=replace(trial.config.batching, kind=kind))
    config = settle_microbatches(replace(trial, config=config), folder)
    plan = plan_reading(
        config,
        trial.dataset,
        model=read_work_model(trial.spread.bare, trial.dataset),
        ranks=trial.ranks,
        packs_dirs=trial.packs_dirs,
    )
    return BatchReader(
        trial.dataset,
        plan,
        rank=trial.ranks.rank,
        needs=trial.needs,
        gpu=trial.gpu,
        prefetch=1,
    )
