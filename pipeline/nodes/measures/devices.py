"""Speed of matrix products on this node's devices, and of copies from the host to them.

Each GPU that the job sees is measured separately; the result is that of the slowest, for which
a synchronous training waits. Without a GPU the processor is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from pipeline.nodes.measures.measurement import (
    Deadline,
    Measurement,
    median,
    not_measured,
    repeated,
)
from pipeline.timing.card_peaks import peak_flops_per_s
from pipeline.train.device.precision import native_precisions

_SIDES = {"cpu": 1024, "cuda": 8192}
"""Rows and columns: large enough to keep a card busy; a CPU's product takes 0.1 s."""
_COPY_BYTES = 256 * 2**20
_PRODUCTS = 10
"""Products per repetition on a GPU: waiting for the device takes as long as a small product."""
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def measure_matmul(num_threads: int, deadline: Deadline, *, side: int | None = None) -> Measurement:
    """Return FLOP/s of products of square matrices, by the precisions of the device.

    Args:
        num_threads: Threads for the processor's product, without a GPU.
        deadline: After it no further repetition begins.
        side: Rows and columns; by default suited to the device.
    """
    cards = _cards()
    if not cards:
        torch.set_num_threads(num_threads)
    torch.backends.cuda.matmul.allow_tf32 = False  # real fp32
    devices = cards or [torch.device("cpu")]
    side = side or _SIDES[devices[0].type]
    plan = []
    for device in devices:
        capability = torch.cuda.get_device_capability(device) if cards else None
        plan += [(device, name) for name in native_precisions(capability)]
    rates: dict[str, list[float]] = {}
    for number, (device, precision) in enumerate(plan):
        share_s = deadline.left_s / (len(plan) - number)
        rate = _matmul_rate(device, precision, side, Deadline.after(share_s))
        rates.setdefault(precision, []).append(rate)
    numbers = {
        f"matmul_{name}_flops_per_s": min(rates_of_devices)
        for name, rates_of_devices in rates.items()
    }
    details: dict[str, Any] = {
        "device": devices[0].type,
        "side": side,
        "num_threads": None if cards else num_threads,
        "flops_per_s_by_device": rates,
        "torch": torch.__version__,
        "share_of_peak": _of_peak(devices[0], rates),
    }
    return Measurement(numbers=numbers, details={"matmul": details})


def measure_transfers(deadline: Deadline, *, num_bytes: int = _COPY_BYTES) -> Measurement:
    """Measure bytes per second from the host's memory to a GPU's, pinned and pageable."""
    cards = _cards()
    if not cards:
        return not_measured("host_to_device", "no GPU is seen by torch in this job")
    plan = [(card, is_pinned) for card in cards for is_pinned in (True, False)]
    rates: dict[bool, list[float]] = {True: [], False: []}
    for number, (card, is_pinned) in enumerate(plan):
        share = Deadline.after(deadline.left_s / (len(plan) - number))
        rates[is_pinned].append(_copy_rate(card, num_bytes, share, is_pinned=is_pinned))
    numbers = {
        "host_to_device_pinned_bytes_per_s": min(rates[True]),
        "host_to_device_pageable_bytes_per_s": min(rates[False]),
    }
    details = {
        "copy_bytes": num_bytes,
        "pinned_by_device": rates[True],
        "pageable_by_device": rates[False],
    }
    return Measurement(numbers=numbers, details={"host_to_device": details})


def _cards() -> list[torch.device]:
    if not torch.cuda.is_available():
        return []
    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]


def _of_peak(device: torch.device, rates: Mapping[str, list[float]]) -> Mapping[str, float]:
    """Return the share of the data sheet's rate, for known cards."""
    if device.type != "cuda":
        return {}
    name = torch.cuda.get_device_name(device)
    peaks = {precision: peak_flops_per_s(name, precision) for precision in rates}
    return {p: min(rates[p]) / peak for p, peak in peaks.items() if peak}


def _matmul_rate(device: torch.device, precision: str, side: int, deadline: Deadline) -> float:
    dtype = _DTYPES[precision]
    left = torch.rand(side, side, device=device).to(dtype)
    right = torch.rand(side, side, device=device).to(dtype)
    out = torch.empty(side, side, device=device, dtype=dtype)
    number = _PRODUCTS if device.type == "cuda" else 1

    def multiply() -> None:
        for _ in range(number):
            torch.matmul(left, right, out=out)

    multiply()  # loads the kernels, and raises the clock
    seconds = repeated(lambda: _timed(multiply, device), deadline, most=15)
    return 2 * side**3 * number / median(seconds)


def _copy_rate(card: torch.device, num_bytes: int, deadline: Deadline, *, is_pinned: bool) -> float:
    # touched, so the pages exist
    host = torch.ones(num_bytes, dtype=torch.uint8, pin_memory=is_pinned)
    target = torch.empty(num_bytes, dtype=torch.uint8, device=card)
    target.copy_(host)

    def copy() -> None:
        target.copy_(host, non_blocking=is_pinned)

    return num_bytes / median(repeated(lambda: _timed(copy, card), deadline, most=15))


def _timed(action: Callable[[], None], device: torch.device) -> float:
    """Return seconds from an idle device to an idle device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start_s = time.perf_counter()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start_s
