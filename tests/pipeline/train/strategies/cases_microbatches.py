"""What the pair of ranks does with `num_microbatches: auto`; registered beside the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

from pipeline.timing.span_log import SpanLog
from pipeline.train.memory import measured_memory
from pipeline.train.phase import phases_of
from pipeline.train.trained_model.trained_model import TrainedModel, switch_phase
from pipeline.train.trials.microbatch_choice import settle_microbatches
from pipeline.train.trials.microbatch_search import search
from pipeline.train.trials.trial import TrialInputs
from slurm_jobs.formats.configs.train import TrainConfig
from tests.pipeline.train.strategies.accelerate_cases import FSDP, write
from tests.pipeline.train.strategies.accelerate_shim import sharding_on_cpu
from tests.pipeline.train.strategies.cases import case
from tests.pipeline.train.strategies.trainer import Trainer, rank_device_of

PLENTY = 1e15
"""Bytes."""
STRATEGY = "fsdp2"
MORE_STRATEGIES = ("ddp", "accelerate fsdp2")
"""As the cases are called that train without a search; of accelerate's file as ours. A search takes
as long as a third of all other cases, so that these are of the slow tests alone."""


def make_trial(pair: Trainer, config: TrainConfig, made: TrainedModel, folder: Path) -> TrialInputs:
    return TrialInputs(
        config=config,
        dataset=pair.kind("small_vlm").dataset,
        strategy=made.strategy,
        parallel=made.parallel,
        needs=made.needs,
        rank_device=rank_device_of(config),
        ranks=pair.ranks,
        num_local_ranks=2,
        spans=SpanLog(folder, pair.ranks.rank),
        packs_dirs=(),
    )


def unequal_memory(strategy: str) -> None:
    """Rank 1 has room for four rows of the eight that it learns in a step, rank 0 for all."""

    def train(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
        options = {"num_microbatches": "auto", "global_batch_size": 16, "num_lanes": 2}
        if strategy.startswith("accelerate"):
            with sharding_on_cpu():
                return find_and_train(pair, **options, **write(pair, FSDP))
        return find_and_train(pair, strategy=strategy, **options)

    case(searching(strategy))(train)


def searching(strategy: str) -> str:
    """Name of the case."""
    return f"{strategy}, microbatches for unequal memory"


def given(strategy: str) -> str:
    """Name of the case that trains with the number that the search has to find."""
    return f"{strategy.removeprefix('accelerate ')}, 2 microbatches"


def find_and_train(pair: Trainer, **options: Any) -> dict[str, Any]:
    config = pair.config("small_vlm", **options)
    made = pair.build_trained_model("small_vlm", config)
    folder = pair.folder / f"auto-{config.strategy}"
    folder.mkdir(parents=True)
    trial = make_trial(pair, config, made, folder)
    is_tight = pair.ranks.rank == 1
    with patch.object(measured_memory, "resident_bytes", lambda: 0):
        # The peaks of the rank with the least room are told: those of rank 1.
        roomy = search(trial, PLENTY / 1000 if is_tight else PLENTY)
        room = (roomy.tried[4] + roomy.tried[8]) / 2 / config.memory_share
        capacity = room if is_tight else PLENTY
        with patch.object(measured_memory, "read_capacity", lambda *_: capacity):
            settled = settle_microbatches(trial, folder)
            again = settle_microbatches(trial, folder)
    made = switch_phase(made, phases_of(config)[0], trial.rank_device)
    return {
        **pair.make_steps(made, "small_vlm", settled),
        "roomy": roomy.num_microbatches,
        "settled": [settled.num_microbatches, again.num_microbatches],
        "num_kept": pair.ranks.sums([len(list(folder.glob("*.json")))]),
    }


for strategy in (STRATEGY, *MORE_STRATEGIES):
    unequal_memory(strategy)
