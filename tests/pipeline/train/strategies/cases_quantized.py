"""What the pair of ranks does with layers in 4 bits; registered beside the other cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch

from pipeline.models.quantize import quantized_names
from pipeline.models.vision_language import plain_arguments
from pipeline.train import prepare
from pipeline.train.batches import to_device
from pipeline.train.device import Workplace
from slurm_jobs.shared.errors import StageConfigError
from tests.pipeline.train.strategies import reference_qlora
from tests.pipeline.train.strategies.cases import case, single, training
from tests.pipeline.train.strategies.trainer import Trainer, workplace_of

KIND = "qwen2_5_vl"
LORA = {"rank": 8, "alpha": 16.0}
LEARNING_RATE = 1e-2
QLORA = {
    "kind": KIND,
    "adapters": LORA,
    "quantize": {},
    "num_steps": 6,
    "optimizer": {"learning_rate": LEARNING_RATE},
}
V100 = {**QLORA, "precision": "fp16"}
STORAGES = ("uint8", "bf16", "fp16")
PRECISIONS = ("fp32", "bf16", "fp16")
STRATEGIES = ("single", "ddp", "fsdp2")
SPREAD = {
    "fsdp2": {},
    "ddp": {"strategy": "ddp"},
    "fsdp2, one unit": {"sharding": {"unit_min_params": 10**9}},
    "hybrid": {"sharding": {"within": "node"}},
    "offload": {"sharding": {"cpu_offload": True}},
    "2 microbatches": {"num_microbatches": 2},
}
WRONG = ("bf16", "fp16")
"""Storage and precision that do not agree."""

single("4 bits, single", **QLORA)
for name, changes in SPREAD.items():
    training(f"4 bits, {name}", **QLORA, **changes)
training("4 bits, fsdp2, recomputed", **QLORA, activation_checkpointing=True)
training("4 bits, small model", **{**QLORA, "kind": "small_vlm"})
single("4 bits, small model, single", **{**QLORA, "kind": "small_vlm"})
training("4 bits, V100", **V100)
training("4 bits, V100, ddp", **V100, strategy="ddp")
single("4 bits, V100, single", **V100)
training(
    "4 bits, bf16 stored as bf16", **{**QLORA, "precision": "bf16", "quantize": {"storage": "bf16"}}
)
training("4 bits, bf16", **{**QLORA, "precision": "bf16"})


def _reference(*, halved: bool) -> None:
    def train(alone: Trainer, _pair: Trainer) -> dict[str, Any]:
        return reference_qlora.train(
            str(alone.kinds[KIND].model_dir),
            list(_plain_inputs(alone)),
            halved=halved,
            rank=LORA["rank"],
            alpha=LORA["alpha"],
            learning_rate=LEARNING_RATE,
        )

    case(f"4 bits, reference, {'fp16' if halved else 'fp32'}")(train)


def _plain_inputs(alone: Trainer) -> Iterator[dict[str, Any]]:
    """What each step of a training gives to the model, as transformers takes it."""
    config = alone.config(strategy="single", **QLORA)
    made = alone.spread(KIND, config)
    for (batch,) in alone.batches(KIND, made, config, "mixed", None):
        inputs = to_device(batch, workplace_of(config), made.spread.bare.layout)
        yield {
            "input_ids": inputs.input_ids,
            "position_ids": inputs.position_ids,
            "places": inputs.supervised,
            "targets": inputs.targets,
            **plain_arguments(inputs.vision, inputs.input_ids.device),
        }


for halved in (True, False):
    _reference(halved=halved)


def _combination(strategy: str, storage: str, precision: str) -> None:
    """Whether the bytes survive, with the check of the table left out."""

    def look(alone: Trainer, pair: Trainer) -> dict[str, Any]:
        trainer = alone if strategy == "single" else pair
        workplace = Workplace(
            device=torch.device("cpu"), precision=precision, num_compute_threads=1
        )
        config = trainer.config(
            KIND, strategy=strategy, adapters=LORA, quantize={"storage": storage}
        )
        with ExitStack() as stack:
            stack.enter_context(patch.object(prepare, "check_dtypes"))
            stack.enter_context(
                patch("tests.pipeline.train.strategies.trainer.workplace_of", lambda _: workplace)
            )
            try:
                made = trainer.spread(KIND, config)
            except StageConfigError as error:
                return {"problem": str(error)}
        return {
            "problem": None,
            "facts": {"dtypes": made.facts.dtypes, "placements": made.facts.placements},
            "num_quantized": len(quantized_names(made.spread.bare)),
        }

    case(f"4 bits, {strategy}, {storage} in {precision}")(look)


for strategy in STRATEGIES:
    for storage in STORAGES:
        for precision in PRECISIONS:
            _combination(strategy, storage, precision)


@case("4 bits, a wrong combination trains without an error")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    storage, precision = WRONG
    workplace = Workplace(device=torch.device("cpu"), precision=precision, num_compute_threads=1)
    unchecked = ("check_dtypes", "check_quantized")
    with ExitStack() as stack:
        for name in unchecked:
            stack.enter_context(patch.object(prepare, name))
        stack.enter_context(
            patch("tests.pipeline.train.strategies.trainer.workplace_of", lambda _: workplace)
        )
        return pair.train(**{**QLORA, "quantize": {"storage": storage}})


@case("4 bits, refused by the table")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    workplace = Workplace(device=torch.device("cpu"), precision="fp16", num_compute_threads=1)
    config = pair.config(KIND, adapters=LORA, quantize={"storage": "bf16"})
    with patch("tests.pipeline.train.strategies.trainer.workplace_of", lambda _: workplace):
        pair.spread(KIND, config)
    return {}


@case("4 bits that learn")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    learn = ["adapters", "model.language_model.layers.1.mlp.*"]
    pair.spread(KIND, pair.config(KIND, adapters=LORA, quantize={}, learn=learn))
    return {}
