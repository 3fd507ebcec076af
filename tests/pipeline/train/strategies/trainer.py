"""Some steps of the real loop with real samples, on one rank of a pair or alone."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from pipeline.data.batch import Batch
from pipeline.data.dataset import open_dataset
from pipeline.models.data_facts import load_tokenizer, read_facts
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.loop import run_steps
from pipeline.train.phase import phases_of
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.trained_model.trained_model import TrainedModel, build_trained_model
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.dataset_folder import PROCESSOR_DIR
from slurm_jobs.formats.timings.packed_check import PACKED_CHECK_SPAN
from tests.contexts import make_context
from tests.pipeline.models.conftest import Kind

NUM_STEPS = 3
SIZES = {"hidden_size": 32, "num_layers": 2, "num_heads": 2}
SMALL = {"vision": {**SIZES, "patch_size": 14}, "language": SIZES}
TEXT = 2
"""Which of `tiny.ROWS` has no picture."""
ROWS = {
    "mixed": ((0, 1), (2, 3)),
    "text on rank 1": ((0, 1), (TEXT, TEXT)),
    "packed": ((0, 1), (2, 3)),
    "packed on one rank": ((0, 1), (TEXT,)),
}
"""Which samples each of two ranks has in a step; if they are packed, in one row."""


class Alone:
    """The only rank, without a process group."""

    rank, num_ranks = 0, 1

    def sums(self, values: list[float]) -> list[float]:
        return list(values)

    def sum_on_device(self, _tensor: torch.Tensor) -> None:
        """Nobody adds anything."""

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def from_main(self, value: Any) -> Any:
        return value

    def meet(self, _what: str, *, speaks: bool) -> None:
        """Nobody else comes."""


class Outcomes:
    """In the place of a recorder."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def end_step(self, _counts: Any, outcome: Any) -> None:
        if outcome is not None:
            self.found.append(outcome)

    def add_outcome(self, outcome: Any) -> None:
        self.found.append(outcome)

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_args, **_keywords: None


class Unwritten:
    """In the place of a log of spans: keeps their notes."""

    def __init__(self) -> None:
        self.notes: dict[str, dict[str, Any]] = {}

    @contextmanager
    def span(self, name: str) -> Iterator[dict[str, Any]]:
        yield self.notes.setdefault(name, {})


class Unready:
    """Batches of a reader that is never ahead."""

    def __init__(self, batches: Iterator[list[Batch]]) -> None:
        self._batches = batches

    def __next__(self) -> list[Batch]:
        return next(self._batches)

    def peek(self) -> None:
        """Return the next step: never ready."""


def open_kind(name: str, folder: Path) -> Kind:
    """What `tiny.write_dataset` and `write_tiny` have written."""
    dataset_dir = Path((folder / "dataset_dir").read_text())
    dataset = open_dataset(dataset_dir)
    tokenizer = load_tokenizer(dataset_dir / PROCESSOR_DIR)
    return Kind(
        name=name,
        model_dir=folder / "model",
        dataset_dir=dataset_dir,
        dataset=dataset,
        facts=read_facts(dataset.info, tokenizer),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainer:
    """One rank that trains models again and again."""

    kinds: dict[str, Kind]
    ranks: Ranks | Alone
    folder: Path

    def config(self, kind: str, **changes: Any) -> TrainConfig:
        model: dict[str, Any] = SMALL
        if kind != "small_vlm":
            model = {"type": "hugging_face", "path": str(self.kinds[kind].model_dir)}
        values = {
            "device": "cpu",
            "model": model,
            "num_steps": NUM_STEPS,
            "sharding": {"unit_min_params": 0},
            "optimizer": {"learning_rate": 3e-3},
            "schedule": {"kind": "constant", "warmup_share": 0.0},
            "checkpoint": {"every_min": None},
            **changes,
        }
        if values.get("strategy", "fsdp2") != "fsdp2":
            del values["sharding"]
        else:
            values["sharding"] = {"unit_min_params": 0, **values["sharding"]}
        return build_config(TrainConfig, values)

    def build_trained_model(
        self, kind: str, config: TrainConfig, *, node: str = "node-0"
    ) -> TrainedModel:
        local_rank = self.ranks.rank if node == "node-0" else 0
        context = make_context("train", self.folder, node_name=node, local_rank=local_rank)
        rank_device = rank_device_of(config)
        return build_trained_model(
            config,
            phases_of(config),
            context=context,
            rank_device=rank_device,
            ranks=self.ranks,
            data=self.kind(kind).facts,
        )

    def kind(self, name: str) -> Kind:
        return self.kinds["llava_siglip" if name == "small_vlm" else name]

    def train(
        self,
        kind: str = "small_vlm",
        *,
        rows: str = "mixed",
        node: str = "node-0",
        poison: Callable[[TrainedModel, int], None] | None = None,
        **changes: Any,
    ) -> dict[str, Any]:
        """Losses and norms of each step, and a digest of the weights at the end."""
        config = self.config(kind, **changes)
        made = self.build_trained_model(kind, config, node=node)
        return self.make_steps(made, kind, config, rows=rows, poison=poison)

    def make_steps(
        self,
        made: TrainedModel,
        kind: str,
        config: TrainConfig,
        *,
        rows: str = "mixed",
        poison: Callable[[TrainedModel, int], None] | None = None,
    ) -> dict[str, Any]:
        """The same, of a model that is parallelized."""
        recorder, spans = Outcomes(), Unwritten()
        trainer = SimpleNamespace(
            job=SimpleNamespace(spans=spans),
            current=SimpleNamespace(
                config=config,
                num_steps=config.num_steps,
                first_step=0,
                dataset=self.kind(kind).dataset,
            ),
            model=made,
            batches=Unready(self.batches(kind, made, config, rows, poison)),
            rank_device=rank_device_of(config),
            ranks=self.ranks,
            recorder=recorder,
            saver=SimpleNamespace(save=lambda *_, **__: None, has_ended_here=lambda: False),
            evaluate_held_out=None,
            report=lambda *_: None,
        )
        run_steps(trainer, 0)
        made.strategy.close(made.parallel)
        return {
            "losses": [outcome.loss for outcome in recorder.found],
            "norms": [outcome.grad_norm for outcome in recorder.found],
            "num_skips": made.scaling.num_skips,
            "scale": made.scaling.scale,
            "facts": dataclasses.asdict(made.facts),
            "packed_check": spans.notes.get(PACKED_CHECK_SPAN),
            "weights": digest(made.parallel.bare),
        }

    def batches(
        self, kind: str, made: TrainedModel, config: TrainConfig, rows: str, poison: Any
    ) -> Iterator[list[Batch]]:
        """The rows of this rank, or of both if it is alone; another order in each step."""
        found, samples = self.kind(kind), self.kind(kind).samples()
        for step in range(config.num_steps):
            both = ROWS[rows][step % 2], ROWS[rows][1 - step % 2]
            if rows == "text on rank 1":
                both = ROWS[rows]
            mine = sum(both, ()) if self.ranks.num_ranks == 1 else both[self.ranks.rank]
            size = len(mine) // config.num_microbatches
            in_row = 2 if rows.startswith("packed") else 1
            if poison is not None:
                poison(made, step)
            yield [
                found.batch(
                    made.parallel.bare,
                    [
                        [samples[number] for number in mine[first : first + in_row]]
                        for first in range(at, at + size, in_row)
                    ],
                )
                for at in range(0, len(mine), size)
            ]


def rank_device_of(config: TrainConfig) -> RankDevice:
    precision = "fp32" if config.precision == "auto" else config.precision
    return RankDevice(device=torch.device("cpu"), precision=precision, num_compute_threads=1)


def digest(bare: torch.nn.Module) -> str:
    """Of all weights, gathered."""
    found = hashlib.sha256()
    for parameter in bare.parameters():
        whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        found.update(whole.detach().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]
