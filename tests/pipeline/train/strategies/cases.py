"""What the pair of ranks does; each test looks at what one or several cases gave."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from pipeline.models.build import build_model
from pipeline.timing.profiler import Profiling
from pipeline.timing.span_log import SpanLog
from pipeline.train import loop
from pipeline.train.accelerate_settings import read_accelerate_file
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.strategies.replicated import Replicated
from pipeline.train.strategies.strategy import ParallelModel
from pipeline.train.strategy_checks.effect import check_effect, check_gradients
from pipeline.train.strategy_checks.equal_weights import check_equal_weights
from pipeline.train.trained_model.trained_model import TrainedModel
from pipeline.train.training_data.batches import loss_of, to_device
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.configs.training_parts import ProfileConfig
from slurm_jobs.formats.timings.profiler_files import operators_path, read_operators
from tests.pipeline.train.attention.leaks import LEAKS
from tests.pipeline.train.strategies.accelerate_shim import sharding_on_cpu
from tests.pipeline.train.strategies.trainer import SIZES, SMALL, Trainer, rank_device_of

Case = Callable[[Trainer, Trainer], dict[str, Any]]
CASES: dict[str, Case] = {}
OPTIONS: dict[str, dict[str, Any]] = {
    "fsdp2": {},
    "fsdp2, one unit": {"sharding": {"unit_min_params": 10**9}},
    "ddp": {"strategy": "ddp"},
    "hybrid over two nodes": {"sharding": {"within": "node"}, "node": "own"},
    "hybrid within one node": {"sharding": {"within": "node"}},
    "weights kept after forward": {"sharding": {"reshard_after_forward": False}},
    "prefetch of two": {"sharding": {"forward_prefetch": 2}},
    "offload": {"sharding": {"cpu_offload": True}},
    "gradients sharded": {"sharding": {"accumulate": "sharded"}},
}
HF_KINDS = ("qwen2_5_vl", "smolvlm", "llava_siglip")
IN_STEP = ("small_vlm", *HF_KINDS, "qwen3_vl", "qwen3_5", "qwen3_5_moe")
"""Qwen3-VL's layers of the language model take features of images, too. Most of Qwen3.5's have a
delta net, and those of the last have experts."""
TIED = "qwen2_vl"
PARTS: dict[str, dict[str, Any]] = {
    "projector": {"learn": ["projector"]},
    "adapters too": {"learn": ["projector", "adapters"], "adapters": {"rank": 4, "alpha": 8.0}},
}


def case(name: str) -> Callable[[Case], Case]:
    def keep(function: Case) -> Case:
        assert name not in CASES
        CASES[name] = function
        return function

    return keep


def training(name: str, *, is_alone: bool = False, node: str = "node-0", **options: Any) -> None:
    def train(alone: Trainer, pair: Trainer) -> dict[str, Any]:
        trainer = alone if is_alone else pair
        own = f"node-{1 + pair.ranks.rank}" if node == "own" else node
        return trainer.train(node=own, **options)

    case(name)(train)


def single(name: str, **options: Any) -> None:
    training(name, is_alone=True, strategy="single", **options)


single("single")
single("single, 4 microbatches", num_microbatches=4)
for option, changes in OPTIONS.items():
    training(option, **changes)
for option in ("fsdp2", "ddp", "hybrid over two nodes", "gradients sharded", "offload"):
    training(f"{option}, 2 microbatches", num_microbatches=2, **OPTIONS[option])
for kind in IN_STEP:
    single(f"text on rank 1, {kind}, single", kind=kind, rows="text on rank 1")
    for strategy in ("fsdp2", "ddp"):
        changes = {"kind": kind, "rows": "text on rank 1", "strategy": strategy}
        training(f"text on rank 1, {kind}, {strategy}", num_microbatches=2, **changes)
for kind in ("small_vlm", *HF_KINDS):
    # What enters the layers of the language model has a gradient by the projector alone.
    for parts, learning in PARTS.items():
        changes = {"kind": kind, "rows": "text on rank 1", **learning}
        single(f"text on rank 1, {parts} of {kind}, single", **changes)
        training(f"text on rank 1, {parts} of {kind}, fsdp2", **changes)
AGAIN = {"activation_checkpointing": True}
"""Each case of `RECOMPUTED` has a twin without it."""
RECOMPUTED: dict[str, dict[str, Any]] = {
    "fsdp2": {},
    "fsdp2, 2 microbatches": {"num_microbatches": 2},
    "weights kept after forward": OPTIONS["weights kept after forward"],
    "prefetch of two": OPTIONS["prefetch of two"],
    "fsdp2, bf16": {"precision": "bf16"},
    "ddp": {"strategy": "ddp"},
    "text on rank 1, projector of smolvlm, fsdp2": {
        "kind": "smolvlm",
        "rows": "text on rank 1",
        **PARTS["projector"],
    },
}
single("single, recomputed", **AGAIN)
for name, changes in RECOMPUTED.items():
    training(f"{name}, recomputed", **changes, **AGAIN)
COMPILED = {"backend": "eager"}
"""Layers are traced as for any backend; what comes of it is the same to the last bit."""
training("fsdp2, compiled", compile=COMPILED, **AGAIN)
PACKED_KIND = "qwen2_5_vl"
"""Packed rows, and pictures and windows of sizes of their own."""
PACKED: dict[str, dict[str, Any]] = {
    "fsdp2": {},
    "fsdp2, recomputed": AGAIN,
    "fsdp2, bf16": {"precision": "bf16"},
    "fsdp2, compiled": {"compile": COMPILED},
    "ddp": {"strategy": "ddp"},
    "fsdp2, qlora": {"quantize": {}, "adapters": {"rank": 4, "alpha": 8.0}},
}
for attention in ("dense", "varlen"):
    packed = {"kind": PACKED_KIND, "rows": "packed", "attention": attention}
    single(f"packed, {attention}, single", **packed)
    for name, changes in PACKED.items():
        training(f"packed, {attention}, {name}", **packed, **changes)
training("packed on one rank", kind=PACKED_KIND, rows="packed on one rank")


def unchecked(name: str) -> None:
    @case(f"packed, dense, {name}, unchecked")
    def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "check_packed_rows", lambda *_, **__: None)
            changes = {"kind": PACKED_KIND, "attention": "dense", **PACKED[name]}
            return pair.train(rows="packed", **changes)


UNCHECKED = ("fsdp2", "fsdp2, bf16", "ddp")
for name in UNCHECKED:
    unchecked(name)


@case("leak on rank 1")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    name, plant = LEAKS["a mask over samples"]
    config = pair.config(name)
    made = pair.build_trained_model(name, config)
    with pytest.MonkeyPatch.context() as patch:
        if pair.ranks.rank == 1:
            plant(patch, made)
        return pair.make_steps(made, name, config, rows="packed")


single("single, fp16", precision="fp16")
single("single, bf16", precision="bf16")
for strategy in ("fsdp2", "ddp"):
    for precision in ("bf16", "fp16"):
        training(f"{strategy}, {precision}", strategy=strategy, precision=precision)
    training(
        f"{strategy}, fp16 from a scale that overflows",
        strategy=strategy,
        precision="fp16",
        num_steps=6,
        scaler={"init_scale": 2.0**20},
    )
    training(
        f"{strategy}, fp16 that always overflows",
        strategy=strategy,
        precision="fp16",
        scaler={"init_scale": 2.0**60, "max_skips": 2},
    )


def poison_on_rank_1(trainer: Trainer) -> Callable[[TrainedModel, int], None]:
    """In step 1 a gradient of rank 1 becomes infinite, after all were reduced."""

    def poison(made: TrainedModel, step: int) -> None:
        if step != 1 or trainer.ranks.rank != 1:
            return
        unscale = made.scaling.unscale

        def unscale_poisoned(optimizer: torch.optim.Optimizer) -> None:
            made.scaling.unscale = unscale
            gradient = optimizer.param_groups[0]["params"][-1].grad
            local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
            local.view(-1)[0] = math.inf
            unscale(optimizer)

        made.scaling.unscale = unscale_poisoned

    return poison


def overflow(strategy: str) -> None:
    options = {"strategy": strategy, "precision": "fp16", "scaler": {"init_scale": 1024.0}}

    @case(f"{strategy}, overflow on rank 1")
    def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
        return pair.train(poison=poison_on_rank_1(pair), **options)


overflow("fsdp2")
overflow("ddp")


def begun_step(option: str) -> None:
    """What lies on a rank in the midst of a step of two microbatches."""

    def look(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
        config = pair.config("small_vlm", num_microbatches=2, **OPTIONS[option])
        made = pair.build_trained_model("small_vlm", config)
        model, layout = made.parallel.model, made.parallel.bare.layout
        batch = next(pair.batches("small_vlm", made, config, "mixed", None))[0]
        layer = made.parallel.bare.towers()[1][0]
        with made.strategy.microbatch(model, is_last=False):
            loss = loss_of(model, to_device(batch, rank_device_of(config), layout))
            is_sharded = [isinstance(weight, DTensor) for weight in layer.parameters()]
            loss.backward()
        gradients = [weight.grad for weight in made.parallel.bare.parameters()]
        there = [gradient for gradient in gradients if gradient is not None]
        whole = [g.full_tensor() if isinstance(g, DTensor) else g for g in there]
        return {
            "num_gradients": len(there),
            "sum": sum(float(gradient.abs().sum()) for gradient in whole),
            "layer_is_sharded_after_forward": all(is_sharded),
        }

    case(f"{option}, first microbatch")(look)


for option in ("fsdp2", "ddp", "gradients sharded", "weights kept after forward"):
    begun_step(option)


def build(pair: Trainer, config: TrainConfig, seed: int = 0) -> Any:
    return build_model(config.model, pair.kind("small_vlm").facts, seed=seed)


@case("other weights on rank 1")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    check_equal_weights(build(pair, pair.config("small_vlm"), seed=pair.ranks.rank), pair.ranks)
    return {}


@case("another buffer on rank 1")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    model = build(pair, pair.config("small_vlm"))
    model.language.model.rotary_emb.inv_freq.add_(pair.ranks.rank)
    check_equal_weights(model, pair.ranks)
    return {}


@case("other shapes on rank 1")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    width = 32 * (1 + pair.ranks.rank)
    config = pair.config("small_vlm", model={**SMALL, "language": {**SIZES, "hidden_size": width}})
    pair.build_trained_model("small_vlm", config)
    return {}


@case("no model on rank 0")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    folder = pair.folder / "nothing" if pair.ranks.rank == 0 else pair.kinds["smolvlm"].model_dir
    pair.build_trained_model(
        "smolvlm", pair.config("smolvlm", model={"type": "hugging_face", "path": str(folder)})
    )
    return {}


@case("loaded once")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    """Of a model whose output head is its input embeddings."""
    whole = build_model(pair.config(TIED).model, pair.kind(TIED).facts, seed=0)
    made = pair.build_trained_model(TIED, pair.config(TIED))
    hf = made.parallel.bare.hf
    expected = dict(whole.named_parameters())
    shared = {name: value.full_tensor() for name, value in made.parallel.bare.named_parameters()}
    different = [n for n, value in expected.items() if not torch.equal(value, shared[n])]
    buffers = dict(made.parallel.bare.named_buffers())
    different += [n for n, b in whole.named_buffers() if not torch.equal(b, buffers[n])]
    return {
        "different": different,
        "num": len(shared),
        "num_expected": len(expected),
        "is_tied": hf.get_output_embeddings().weight is hf.get_input_embeddings().weight,
    }


def sgd(model: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters())


def replicate(model: Any) -> ParallelModel:
    rank_device = RankDevice(device=torch.device("cpu"), precision="fp32", num_compute_threads=1)
    return Replicated(rank_device).parallelize(model, sgd)


def shard(
    model: Any, *, root: bool = True, layers: bool = True, whole: tuple[str, ...] = ()
) -> ParallelModel:
    left = {parameter for name, parameter in model.named_parameters() if name in whole}
    for tower in model.towers() if layers else []:
        for layer in tower:
            fully_shard(layer)
    if root:
        fully_shard(model, ignored_params=left)
    return ParallelModel(model=model, bare=model, optimizer=sgd(model))


def shard_after_the_optimizer(model: Any) -> ParallelModel:
    optimizer = sgd(model)
    return dataclasses.replace(shard(model), optimizer=optimizer)


SABOTAGED: dict[str, tuple[Callable[[Any], ParallelModel], dict[str, Any], str]] = {
    "another strategy than asked for": (
        replicate,
        {},
        "did not take effect: vision.embeddings.patch_embedding.weight has the placement whole",
    ),
    "root forgotten": (
        lambda model: shard(model, root=False),
        {},
        "embeddings.patch_embedding.weight has the placement whole, expected Shard(dim=0)",
    ),
    "units forgotten": (
        lambda model: shard(model, layers=False),
        {},
        "parts gathered one at a time: 1, expected 5",
    ),
    "hybrid forgotten": (
        shard,
        {"sharding": {"within": "node"}},
        "has the placement Shard(dim=0), expected Replicate(), Shard(dim=0)",
    ),
    "activation checkpointing forgotten": (
        shard,
        AGAIN,
        "layers recomputed in the backward pass: 0, expected 4; use the versions of",
    ),
    "compile forgotten": (
        shard,
        {"compile": COMPILED},
        "layers that are compiled: 0, expected 2; use the versions of",
    ),
    "precision forgotten": (
        shard,
        {"precision": "bf16"},
        "computes in: torch.float32, expected torch.bfloat16",
    ),
    "half precision stored": (
        lambda model: shard(model.bfloat16()),
        {},
        "is stored as torch.bfloat16, expected torch.float32",
    ),
    "optimizer made before sharding": (
        shard_after_the_optimizer,
        {},
        "in no group, and would never change",
    ),
}
"""How a model is parallelized instead, the config, and what the check of its effect says."""


def check_parallelized_by(
    pair: Trainer, parallelize_by: Callable[[Any], ParallelModel], **changes: Any
) -> dict[str, Any]:
    """Check the result of `parallelize_by` like the strategy's own, which reads the facts."""
    config = pair.config("small_vlm", **changes)
    file = read_accelerate_file(config, pair.ranks, num_nodes=1)
    with sharding_on_cpu():
        strategy = pair.build_trained_model("small_vlm", config).strategy
    parallel = parallelize_by(build(pair, config))
    check_effect(parallel, strategy.facts(parallel), config, rank_device_of(config), 2, file=file)
    return {}


def sabotaged(name: str, parallelize_by: Callable[[Any], ParallelModel], **changes: Any) -> None:
    case(name)(lambda _alone, pair: check_parallelized_by(pair, parallelize_by, **changes))


for name, (parallelize_by, changes, _message) in SABOTAGED.items():
    sabotaged(name, parallelize_by, **changes)


@case("parameter that nothing uses")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 2), "idle": torch.nn.Linear(2, 2)})
    model["used"](torch.ones(1, 2)).sum().backward()
    if pair.ranks.rank == 0:
        model["idle"](torch.ones(1, 2)).sum().backward()
    check_gradients(model, pair.ranks)
    return {}


@case("profiled")
def profiled(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    """A whole short training as the one step that is recorded."""
    folder, rank = pair.folder, pair.ranks.rank
    config, spans = ProfileConfig(steps=(0, 0), ranks=(0, 1)), SpanLog(folder, rank)
    with Profiling(config, folder, rank, spans, has_device=False) as profiling:
        profiling.on_step(0)
        pair.train()
    table = read_operators(operators_path(folder, rank))
    return {
        "communication_s": table.communication_s,
        "exposed_s": table.exposed_communication_s,
        "wall_s": table.wall_s,
        "collectives_s": sum(row.cpu_s for row in table.operators if row.name.startswith("gloo:")),
    }
