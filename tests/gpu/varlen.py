"""Attention that takes the borders of segments: the kernel, in a training, and for pictures."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import logging
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pipeline.models.attention_kernels import varlen
from pipeline.models.attention_kernels.pictures import attend_pictures_by_segment
from pipeline.models.computation.aligned_products import align_products
from tests.gpu.models import open_tiny, train, train_config
from tests.gpu.work import Work

_LENGTHS = (1, 127, 128, 1000)
_HEADS = ((4, 2), (3, 3), (6, 1))
_SIZES = (8, 10, 64, 72, 80, 128)
_WINDOWS = ((-1, -1), (-1, 0), (63, 0))
_EPSILONS = 3.0
_FASTER = 3.0
_NUM_PICTURES, _GRID = 8, (48, 64)


def kernel(work: Work) -> None:
    """Compare the kernel's values and gradients with the formula in fp32 on the CPU."""
    work.need_gpu("a CPU runs the formula itself")
    dtypes = (torch.bfloat16, torch.float16)
    bounds = torch.tensor([0, *itertools.accumulate(_LENGTHS)], dtype=torch.int32)
    worst: dict[str, float] = {}
    for dtype, heads, size, window in itertools.product(dtypes, _HEADS, _SIZES, _WINDOWS):
        draw = torch.Generator().manual_seed(size)
        given = [
            torch.randn(int(bounds[-1]), num, size, generator=draw).to(dtype)
            for num in (heads[0], heads[1], heads[1])
        ]
        expected = _values(
            [each.float() for each in given],
            lambda q, k, v, size=size, window=window: varlen.reference_attention(
                q, k, v, bounds, size**-0.5, *window
            ),
        )
        found = _values(
            [each.cuda() for each in given],
            lambda q, k, v, window=window: varlen.attend_varlen(
                q, k, v, bounds=bounds.cuda(), longest=max(_LENGTHS), scale=None, window=window
            ),
        )
        error = max(
            float((a.cpu().float() - b).abs().max() / b.abs().max())
            for a, b in zip(found, expected, strict=True)
        )
        name = f"{dtype}, heads {heads}, size {size}, window {window}"
        worst[name] = error / torch.finfo(dtype).eps
    work.note(num_cases=len(worst), worst_in_epsilons=max(worst.values()), all_in_epsilons=worst)
    wrong = {name: value for name, value in worst.items() if not value <= _EPSILONS}
    work.check(f"all within {_EPSILONS:g} epsilons", not wrong, wrong)


def _values(given: list[torch.Tensor], attend: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    """Return what attention gives, and the gradients of what it was given."""
    leaves = [each.requires_grad_() for each in given]
    found = attend(*leaves)
    weights = torch.linspace(-1, 1, found.numel()).view(found.shape).to(found)
    (found * weights).sum().backward()
    return [found.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def training(work: Work) -> None:
    """Train packed rows both ways: the first batch is compared, and losses are alike."""
    kind = open_tiny("qwen2_5_vl", work.shared)
    ways: dict[str, dict[str, Any]] = {
        "plain": {},
        "recomputed": {"activation_checkpointing": True},
        "adapters": {"adapters": {"rank": 4, "alpha": 8.0}},
        "fsdp2": {"strategy": "fsdp2"},
        "adapters in 4 bits": {"adapters": {"rank": 4, "alpha": 8.0}, "quantize": {}},
        "compiled": {"compile": {} if work.has_gpu else {"backend": "aot_eager"}},
    }
    if work.is_short or not work.has_gpu:  # the tests of strategies have the others
        ways = {"plain": {}}
    if importlib.util.find_spec("bitsandbytes") is None and "adapters in 4 bits" in ways:
        del ways["adapters in 4 bits"]
        work.not_possible("adapters in 4 bits", "the package bitsandbytes is missing")
    precision = "bf16" if work.has_gpu else "fp32"
    cases = [(precision, name, changes) for name, changes in ways.items()]
    if work.has_gpu:  # the ways do not depend on the precision
        cases.append(("fp16", "plain", {}))
    for precision, name, changes in cases:
        losses = {}
        for attention in ("varlen", "dense"):
            config = train_config(
                kind, work, precision=precision, deterministic=False, attention=attention,
                batching={"kind": "packed", "max_tokens": 512}, **changes,
            )  # fmt: skip
            folder = work.folder / f"{precision}-{name}-{attention}"
            with (
                _said("pipeline.train.attention.varlen_check") as said,
                _said("pipeline.train.attention.packed_check") as packed,
            ):
                losses[attention] = train(folder, config).losses[-1]
            work.note(**{f"{precision}_{name}_{attention}_alone": " ".join(packed)})
            work.check(f"{precision}, {name}, {attention}: packed equals alone", packed, packed)
            if attention == "varlen":
                rounding = [text for text in said if "by rounding alone" in text]
                work.note(**{f"{precision}_{name}_difference": " ".join(rounding)})
                work.check(f"{precision}, {name}: the first batch was compared", rounding, said)
                (file,) = folder.rglob("preflight.json")
                chosen = json.loads(file.read_text()).get("packed_attention")
                work.check(
                    f"{precision}, {name}: varlen was chosen", "varlen" in str(chosen), chosen
                )
        work.close_to(f"{precision}, {name}: last loss", losses["varlen"], losses["dense"], 0.02)


@contextmanager
def _said(logger: str) -> Iterator[list[str]]:
    """Collect what a logger is given."""
    texts: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    handler, log = Keep(), logging.getLogger(logger)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield texts
    finally:
        log.removeHandler(handler)


def pictures(work: Work) -> None:
    """Time a vision tower with the sizes of Qwen2.5-VL-3B: a loop over windows, or what we do."""
    from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
        Qwen2_5_VisionTransformerPretrainedModel,
    )

    from tests.gpu.speed_data import VISION

    sizes: dict[str, Any] = {"depth": 32, "fullatt_block_indexes": [7, 15, 23, 31]}
    if not work.has_gpu:
        sizes = {
            "depth": 2, "fullatt_block_indexes": [1], "hidden_size": 64, "intermediate_size": 64,
            "num_heads": 2, "out_hidden_size": 32,
        }  # fmt: skip
    num, grid = (_NUM_PICTURES, _GRID) if work.has_gpu else (2, (16, 24))
    config = Qwen2_5_VLVisionConfig(**{**VISION, **sizes})
    config._attn_implementation = "sdpa"
    dtype = torch.bfloat16 if work.has_gpu else torch.float32
    torch.manual_seed(0)
    with torch.device(work.device):
        tower = Qwen2_5_VisionTransformerPretrainedModel._from_config(config, dtype=dtype)
        patches = torch.randn(num * grid[0] * grid[1], 3 * 2 * 14 * 14, dtype=dtype)
        grids = torch.tensor([[1, *grid]] * num)

    def outputs(of: Any) -> torch.Tensor:
        found = of(patches.to(next(of.parameters()).dtype), grid_thw=grids)
        output: torch.Tensor = getattr(found, "last_hidden_state", found)
        return output

    def run() -> torch.Tensor:
        output = outputs(tower)
        output.float().square().mean().backward()
        return output.detach().float()

    loop, loop_s = run(), _seconds(work, run)
    attend_pictures_by_segment(tower)
    once, once_s = run(), _seconds(work, run)
    align_products(tower)
    ours, ours_s = run(), _seconds(work, run)
    work.note(loop_ms=1e3 * loop_s, by_length_ms=1e3 * once_s, aligned_too_ms=1e3 * ours_s)
    with torch.no_grad():
        exact = outputs(copy.deepcopy(tower).float())
    errors = [float((found - exact).norm() / exact.norm()) for found in (loop, once, ours)]
    work.note(error_of_loop=errors[0], error_by_length=errors[1], error_aligned_too=errors[2])
    work.check("no further from fp32 than the loop", max(errors) <= 1.1 * errors[0] + 1e-5, errors)
    if work.has_gpu:
        work.at_least("times faster than a loop over windows", loop_s / ours_s, _FASTER)


def _seconds(work: Work, run: Callable[[], object]) -> float:
    times = []
    for _ in range(3 if work.has_gpu else 2):
        began = time.perf_counter()
        run()
        if work.has_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
