"""What the pair of ranks does with layers in 4 bits; registered beside the other cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from pipeline.models.finetuning.packed_linear import quantized_names
from pipeline.models.layouts.tower_arguments import plain_arguments
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.trained_model import bare_model, trained_model
from pipeline.train.training_data.batches import to_device
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.train.strategies import reference_qlora
from tests.pipeline.train.strategies import trainer as trainer_module
from tests.pipeline.train.strategies.cases import case, single, training
from tests.pipeline.train.strategies.trainer import Trainer, rank_device_of

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
COMBINATIONS = tuple(itertools.product(("single", "ddp", "fsdp2"), STORAGES, PRECISIONS))
PARALLEL = {
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
for name, changes in PARALLEL.items():
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
    @case(f"4 bits, reference, {'fp16' if halved else 'fp32'}")
    def _(alone: Trainer, _pair: Trainer) -> dict[str, Any]:
        model_dir, inputs = str(alone.kinds[KIND].model_dir), list(_plain_inputs(alone))
        options = {**LORA, "halved": halved, "learning_rate": LEARNING_RATE}
        return reference_qlora.train(model_dir, inputs, **options)


def _plain_inputs(alone: Trainer) -> Iterator[dict[str, Any]]:
    """What each step of a training gives to the model, as transformers takes it."""
    config = alone.config(strategy="single", **QLORA)
    made = alone.build_trained_model(KIND, config)
    for (batch,) in alone.batches(KIND, made, config, "mixed", None):
        inputs = to_device(batch, rank_device_of(config), made.parallel.bare.layout)
        yield {
            "input_ids": inputs.input_ids,
            "position_ids": inputs.position_ids,
            "places": inputs.supervised,
            "targets": inputs.targets,
            **plain_arguments(inputs.vision, inputs.input_ids.device),
        }


for halved in (True, False):
    _reference(halved=halved)


@contextmanager
def computing_in(precision: str, *unchecked: str) -> Iterator[None]:
    """Whatever the config says, with some checks left out."""
    rank_device = RankDevice(device=torch.device("cpu"), precision=precision, num_compute_threads=1)
    with ExitStack() as stack:
        for name in unchecked:
            module = bare_model if name == "check_dtypes" else trained_model
            stack.enter_context(patch.object(module, name))
        stack.enter_context(patch.object(trainer_module, "rank_device_of", lambda _: rank_device))
        yield


def _combination(strategy: str, storage: str, precision: str) -> None:
    """Whether the bytes survive, with the check of the table left out."""

    @case(f"4 bits, {strategy}, {storage} in {precision}")
    def _(alone: Trainer, pair: Trainer) -> dict[str, Any]:
        trainer = alone if strategy == "single" else pair
        config = trainer.config(
            KIND, strategy=strategy, adapters=LORA, quantize={"storage": storage}
        )
        with computing_in(precision, "check_dtypes"):
            try:
                made = trainer.build_trained_model(KIND, config)
            except StageConfigError as error:
                return {"problem": str(error)}
        return {"problem": None, "num_quantized": len(quantized_names(made.parallel.bare))}


for combination in COMBINATIONS:
    _combination(*combination)


@case("4 bits, a wrong combination trains without an error")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    storage, precision = WRONG
    with computing_in(precision, "check_dtypes", "check_quantized"):
        return pair.train(**{**QLORA, "quantize": {"storage": storage}})


@case("4 bits, refused by the table")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    storage, precision = WRONG
    with computing_in(precision):
        pair.build_trained_model(
            KIND, pair.config(KIND, adapters=LORA, quantize={"storage": storage})
        )
    return {}


@case("4 bits that learn")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    learn = ["adapters", "model.language_model.layers.1.mlp.*"]
    pair.build_trained_model(KIND, pair.config(KIND, adapters=LORA, quantize={}, learn=learn))
    return {}
