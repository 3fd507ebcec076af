"""Losses and gradients on the device against the same model on the CPU in fp32."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import torch

from tests.gpu.models import open_tiny, train, train_config
from tests.gpu.work import NotPossibleError, Work

KINDS = (
    *("qwen2_5_vl", "qwen2_vl", "qwen3_vl", "qwen3_5", "llava_siglip"),
    *("llava_next", "llava_onevision", "idefics3", "smolvlm", "internvl"),
    *("gemma3", "gemma4", "glm4v", "glm_ocr", "paddleocr_vl", "lighton_ocr", "mistral3"),
)
AMPLIFYING = "gemma4"
"""Kind whose gradients follow a relative change of all weights by 0.0001 with 0.018, where those of
Gemma 3 follow with 0.0003: half precision would show nothing."""
SHORT_KINDS = ("qwen2_5_vl",)
TOLERANCES = {"fp32": (1e-4, 1e-3), "bf16": (0.02, 0.08), "fp16": (0.005, 0.03)}
"""Of loss and of the norm of the difference of gradients, relative: some bits of each format,
after two layers of each tower."""
_FP16_SCALE = 2.0**8


@dataclasses.dataclass(kw_only=True)
class Pass:
    """A forward and a backward pass."""

    loss: float
    gradient: torch.Tensor
    """float32 [number of parameters], on the CPU."""


def models(work: Work) -> None:
    """Compare each kind in each precision; recompute its layers as well."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for name in SHORT_KINDS if work.is_short else KINDS:
        try:
            kind = open_tiny(name, work.shared)
        except NotPossibleError as error:
            work.not_possible(name, str(error))
            continue
        rows = [[sample] for sample in kind.samples()]
        reference = compute(kind, "cpu", "fp32", rows)
        for precision, tolerances in TOLERANCES.items():
            found = compute(kind, work.device, precision, rows)
            label = f"{name} {precision}"
            if name != AMPLIFYING or precision == "fp32":
                compare(work, label, found, reference, tolerances)
                continue
            reason = "its random weights amplify a change about a hundredfold, others threefold"
            work.not_possible(f"{label}, gradient", reason)
            work.close_to(f"{label}, loss", found.loss, reference.loss, tolerances[0])
        again = compute(kind, work.device, "fp32", rows, recompute=True)
        compare(work, f"{name} recomputed", again, reference, TOLERANCES["fp32"])


def packed_rows(work: Work) -> None:
    """Compare all samples in one row with each sample in a row of its own."""
    for name in SHORT_KINDS if work.is_short else KINDS[:4]:
        kind = open_tiny(name, work.shared)
        samples = kind.samples()
        for precision, tolerances in TOLERANCES.items():
            alone = compute(kind, work.device, precision, [[sample] for sample in samples])
            packed = compute(kind, work.device, precision, [samples])
            compare(work, f"{name} {precision}", packed, alone, tolerances)


def four_bits(work: Work) -> None:
    """Train adapters on layers in 4 bits, and compare the losses with those on the CPU."""
    work.need_package("bitsandbytes")
    kind = open_tiny("qwen2_5_vl", work.shared)
    settings = {"adapters": {"rank": 4, "alpha": 8.0}, "quantize": {}, "num_steps": 3}
    found = train(work.folder / "device", train_config(kind, work, **settings))
    reference = train(
        work.folder / "cpu", train_config(kind, dataclasses.replace(work, device="cpu"), **settings)
    )
    for step, (loss, expected) in enumerate(zip(found.losses, reference.losses, strict=True)):
        work.close_to(f"loss of step {step}", loss, expected, 0.03)
    _unpacked(work)


def _unpacked(work: Work) -> None:
    """Unpack layers of 4 bits, as the export does, on the device and on the CPU."""
    from pipeline.models.finetuning.packed_linear import dequantize_weights
    from pipeline.models.finetuning.quantized_linear import QuantizedLinear
    from slurm_jobs.formats.configs.model_parts import QuantizeConfig

    cpu, device = torch.device("cpu"), work.torch_device
    width, num = (2048, 4) if work.has_gpu else (96, 2)
    torch.manual_seed(0)
    for is_double in (True, False):
        model = torch.nn.Sequential()
        for _ in range(num):
            plain = torch.nn.Linear(width, 2 * width, bias=False)
            layer = QuantizedLinear(plain, QuantizeConfig(double=is_double))
            layer.take(plain.weight.detach(), cpu)
            model.append(layer)
        weights = {name: value.detach() for name, value in model.named_parameters()}
        expected = dequantize_weights(model, weights, cpu)
        began = time.perf_counter()
        found = dequantize_weights(model, weights, device)
        seconds = time.perf_counter() - began
        same = all(torch.equal(found[name], value) for name, value in expected.items())
        name = "double" if is_double else "single"
        work.check(f"{name} quantisation: the same bits on the device as on the CPU", same)
        if work.has_gpu:
            rate = num * 2 * width**2 / seconds
            work.note(**{f"{name}_unpacked_seconds_for_7_billion": 7e9 / rate})


def compute(
    kind: Any,
    device: str,
    precision: str,
    rows: Sequence[Sequence[Any]],
    *,
    recompute: bool = False,
) -> Pass:
    """Compute the loss and all gradients of a batch with strategy `single`."""
    from pipeline.models.computation.recompute import recompute_layers
    from pipeline.train.device.rank_device import RankDevice
    from pipeline.train.strategies.single import Single
    from pipeline.train.training_data.batches import loss_of, to_device

    rank_device = RankDevice(
        device=torch.device(device), precision=precision, num_compute_threads=2
    )
    strategy, model = Single(rank_device), kind.build()
    if recompute:
        recompute_layers(model)
    parallel = strategy.parallelize(model, lambda m: torch.optim.SGD(m.parameters(), lr=0.0))
    batch = kind.batch(model, [list(row) for row in rows])
    with strategy.forward_context():
        loss = loss_of(parallel.model, to_device(batch, rank_device, model.layout))
    scale = _FP16_SCALE if precision == "fp16" else 1.0
    (loss * scale).backward()
    gradients = [
        (torch.zeros_like(weight) if weight.grad is None else weight.grad).flatten().float().cpu()
        for weight in model.parameters()
    ]
    return Pass(loss=loss.item(), gradient=torch.cat(gradients) / scale)


def compare(
    work: Work, name: str, found: Pass, reference: Pass, tolerances: tuple[float, float]
) -> None:
    """Check a pass against another."""
    work.close_to(f"{name}, loss", found.loss, reference.loss, tolerances[0])
    difference = (found.gradient - reference.gradient).norm() / reference.gradient.norm()
    value = float(difference)
    work.check(f"{name}, gradient", value <= tolerances[1], f"{value:.2g} of {tolerances[1]:g}")
