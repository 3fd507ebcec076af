"""Choice of `batching.kind: auto`: packed rows or batches of similar lengths, by their speed.

Packing saves padding. With a dense mask, attention costs the square of the row instead of the
samples' squares. Which effect is larger depends on model, lengths and kernel, so both are tried
on the data. The choice is stored next to the checkpoints, because the order of samples depends
on it.

With `num_microbatches: auto` each kind is tried with as few microbatches as fit in memory: the
comparison uses the settings of the training.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pipeline.data.loader import BatchReader
from pipeline.train.trials.microbatch_choice import settle_microbatches
from pipeline.train.trials.microbatch_search import NoRoomError
from pipeline.train.trials.stored_choice import as_json, read_kept
from pipeline.train.trials.trial import TrialInputs
from pipeline.train.trials.trial_passes import leaving_no_trace, time_step
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.configs.train import TrainConfig

log = logging.getLogger(__name__)

_Kind = Literal["grouped", "packed"]
_KINDS: tuple[_Kind, ...] = ("grouped", "packed")
_NUM_TRIALS = 3
"""Steps of each kind that are timed, alternating, after one warm-up step of each."""


def choose_batching(trial: TrialInputs, folder: Path) -> TrainConfig:
    """Return the config with the chosen kind of batching; equal on every rank.

    `folder` stores the choice. It is measured again if the model, the data or the batches
    change; then no checkpoint can be continued either. Devices, precision, strategy and the
    number of ranks also affect speed, but do not cause a new choice: training can continue from
    its checkpoints with others, and these have one order of samples.
    """
    config = trial.config
    if config.batching.kind != "auto":
        return config
    key, file = as_json(trial.describe()), folder / "batching.json"

    def check(kept: Any) -> _Kind | None:
        return kept["kind"] if kept["key"] == key and kept["kind"] in _KINDS else None

    kind: _Kind | None = None
    if trial.ranks.rank == 0:
        kind = read_kept(file, check, "the kinds of batching are measured again")
    kind = trial.ranks.from_main(kind)
    if kind is None:
        with leaving_no_trace(trial.rank_device.device):
            rates = _measure(trial, folder)
        fastest = max(rates, key=rates.__getitem__)
        kind = fastest
        if trial.ranks.rank == 0:
            write_json_atomic(file, {"key": key, "kind": kind, "tokens_per_s": rates})
            log.info(
                "batching: auto takes %s (%s)",
                kind, ", ".join(f"{name} {rate:,.0f} tokens/s" for name, rate in rates.items()),
            )  # fmt: skip
    return replace(config, batching=replace(config.batching, kind=kind))


def _measure(trial: TrialInputs, folder: Path) -> dict[_Kind, float]:
    """Return tokens per second of all ranks without padding, by kind: the fastest trial of each.

    Raises:
        NoRoomError: `num_microbatches: auto` has no room for either kind.
    """
    readers: dict[_Kind, BatchReader] = {}
    refused: NoRoomError | None = None
    try:
        for kind in _KINDS:
            try:
                batching = replace(trial.config.batching, kind=kind)
                config = replace(trial.config, batching=batching)
                config = settle_microbatches(replace(trial, config=config), folder)
                readers[kind] = trial.reader(trial.plan(config), rank=trial.ranks.rank)
            except NoRoomError as error:
                refused = error
                if trial.ranks.rank == 0:
                    log.info("batching: auto cannot use %s: %s", kind, error)
        if refused is not None and not readers:
            raise refused
        rates: dict[_Kind, list[float]] = {kind: [] for kind in readers}
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
    return {kind: max(values) for kind, values in rates.items()}
