"""Which versions, which device, and which attention kernels PyTorch chooses on it."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from tests.gpu.work import Work

HEADS = {
    "Qwen2.5-VL-3B language": (16, 128),
    "Qwen2.5-VL vision": (16, 80),
    "SigLIP-so400m vision": (16, 72),
    "SmolVLM language": (15, 64),
}
"""Number of heads and their width; keys are repeated before the kernel."""
LENGTHS = (127, 128, 1000, 4096)
_FP32_ERROR = 1e-5
"""Relative, of a product of matrices; TF32 has 10 bits, and an error of about 3e-4."""
_TF32_CAPABILITY = (8, 0)
_BACKENDS = {0: "math", 1: "flash", 2: "memory-efficient", 3: "cuDNN"}
"""torch._fused_sdp_choice, in the order of `SDPBackend`."""


def versions_and_device(work: Work) -> None:
    """Say what this is, and check that PyTorch has code for the card."""
    from pipeline.timing import card_peaks

    work.note(torch=torch.__version__, cuda=str(torch.version.cuda))
    product = torch.ones(64, 64, device=work.device) @ torch.ones(64, 64, device=work.device)
    work.check("a matrix product is right", bool((product == 64).all()))
    _products(work)
    if not work.has_gpu:
        work.not_possible("card and NVML", "there is no GPU here")
        work.not_possible("expandable segments", "PyTorch's allocator of GPUs has them")
        return
    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    arch = f"sm_{capability[0]}{capability[1]}"
    archs = torch.cuda.get_arch_list()
    work.note(
        name=name,
        capability=arch,
        archs=" ".join(archs),
        memory_gib=torch.cuda.get_device_properties(0).total_memory / 2**30,
        cudnn=str(torch.backends.cudnn.version()),
        nccl=".".join(map(str, torch.cuda.nccl.version())),
    )
    work.check("torch has code for the card", any(a.startswith(arch[:4]) for a in archs), archs)
    peak = card_peaks.peak_flops_per_s(name, "bf16")
    work.check("the card's peak is known", peak is not None, name)
    _matrix_rate(work, peak)
    _expandable_segments(work)
    _nvml(work)


def _products(work: Work) -> None:
    """Compare products and convolutions with those in fp64: exact without TF32, faster with it."""
    from pipeline.train.device.rank_device import set_tf32

    size = 2048 if work.has_gpu else 256
    draw = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=draw).to(work.device) for _ in range(2))
    pixels = torch.randn(64, 3, 56, 56, generator=draw).to(work.device)
    weights = torch.randn(128, 3, 14, 14, generator=draw).to(work.device)
    runs: dict[str, Callable[..., torch.Tensor]] = {
        "product": lambda dtype: left.to(dtype) @ right.to(dtype),
        "convolution": lambda dtype: functional.conv2d(
            pixels.to(dtype), weights.to(dtype), stride=14
        ),
    }
    seconds = {}
    for is_on in (False, True) if work.has_gpu else (False,):
        set_tf32(on=is_on)
        for name, run in runs.items():
            exact, found = run(torch.float64), run(torch.float32)
            error = float((found - exact).norm() / exact.norm())
            work.note(**{f"{name}_error_tf32_{'on' if is_on else 'off'}": error})
            if not is_on:
                work.check(f"a {name} in fp32 is exact", error < _FP32_ERROR, error)
        if work.has_gpu:
            seconds[is_on] = _median_device_s(lambda: left @ right)
    if seconds and torch.cuda.get_device_capability() >= _TF32_CAPABILITY:
        work.at_least("product with TF32, times faster", seconds[False] / seconds[True], 3.0)
    set_tf32(on=False)


def _expandable_segments(work: Work) -> None:
    """Check what the runner sets for each case, as the supervisor does for each rank."""
    kept = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    snapshot: Any = torch.cuda.memory._snapshot()
    work.note(alloc_conf=os.environ.get("PYTORCH_ALLOC_CONF", "not set"))
    on = snapshot["allocator_settings"].get("expandable_segments")
    work.check("expandable segments are on", on, snapshot["allocator_settings"])
    segments = [each for each in snapshot["segments"] if each["total_size"] >= kept.numel()]
    is_used = any(each.get("is_expandable") for each in segments)
    work.check("a large tensor is in one", is_used, f"{len(segments)} segments")


def _nvml(work: Work) -> None:
    """Find the GPU by its UUID, and the cores near it by its PCI address."""
    import pynvml

    from pipeline.train.device.numa_cores import far_text, near_cores

    properties: Any = torch.cuda.get_device_properties(0)
    uuid = f"GPU-{properties.uuid}"
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    use = pynvml.nvmlDeviceGetUtilizationRates(handle)
    work.note(nvml_utilisation_percent=use.gpu)
    work.check("NVML finds torch's GPU by its UUID", pynvml.nvmlDeviceGetUUID(handle) == uuid, uuid)
    bus_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
    shown = (bus_id if isinstance(bus_id, str) else bus_id.decode()).lower()
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    domain, bus, number = (getattr(properties, name, -1) for name in names)
    address = f"{domain:08x}:{bus:02x}:{number:02x}.0"
    work.check("torch has the PCI address of NVML", shown == address, f"{shown}, {address}")
    near = near_cores(torch.device("cuda", 0))
    far = far_text(os.sched_getaffinity(0), near)
    work.note(pci_address=address, num_cores_near=len(near), distance=far or "near")


def _matrix_rate(work: Work, peak: float | None) -> None:
    """Measure the rate of a large matrix product: what any MFU is to be compared with."""
    size = 2048 if work.is_short else 8192
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = _median_device_s(lambda: left @ right)
    rate = 2 * size**3 / seconds
    work.note(matrix_product_tflops=rate / 1e12)
    if peak is not None:
        work.at_least("matrix product, share of the peak", rate / peak, 0.6)


def _median_device_s(run: Any, num: int = 10) -> float:
    for _ in range(3):
        run()
    times = []
    for _ in range(num):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def attention_kernels(work: Work) -> None:
    """Say which kernel PyTorch chooses for each family, and what new lengths cost with cuDNN."""
    dtypes = (torch.bfloat16, torch.float16) if work.has_gpu else (torch.float32,)
    chosen = {}
    for family, dtype, length, masked in itertools.product(HEADS, dtypes, LENGTHS, (False, True)):
        words = (
            family,
            str(dtype).removeprefix("torch."),
            length,
            "masked" if masked else "causal",
        )
        chosen[" / ".join(map(str, words))] = {
            on: _choice(work, HEADS[family], dtype, length, masked=masked, cudnn=on == "cuDNN on")
            for on in ("cuDNN on", "cuDNN off")
        }
    work.note(num_choices=len(chosen), choices=chosen)
    slow = [name for name, by in chosen.items() if by["cuDNN off"] == "math" and work.has_gpu]
    work.check("no choice is the slow math kernel", not slow, slow)
    if not work.has_gpu:
        return
    for on in (True, False):
        name = "cudnn_on" if on else "cudnn_off"
        work.note(**{f"new_length_{name}_ms": 1e3 * _new_length_s(on)})


def _choice(
    work: Work,
    heads: tuple[int, int],
    dtype: torch.dtype,
    length: int,
    *,
    masked: bool,
    cudnn: bool,
) -> str:
    num, width = heads
    shape = (1, num, length, width)
    query = torch.randn(shape, device=work.device, dtype=dtype, requires_grad=True)
    mask = torch.zeros(shape[0], 1, length, length, device=work.device, dtype=dtype)
    if work.has_gpu:
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
    given = mask if masked else None
    number = torch._fused_sdp_choice(query, query, query, given, 0.0, not masked)
    return _BACKENDS.get(number, str(number))


def _new_length_s(cudnn: bool) -> float:
    """Return the median host and device time of a forward pass of a length not seen before."""
    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    times = []
    for length in range(500, 540 if cudnn else 520):
        query = torch.randn(2, 16, length, 128, device="cuda", dtype=torch.bfloat16)
        torch.cuda.synchronize()
        began = time.perf_counter()
        functional.scaled_dot_product_attention(query, query, query, is_causal=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[5:])
