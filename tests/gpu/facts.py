"""Which versions, which device, and which attention kernels PyTorch chooses on it."""

from __future__ import annotations

import itertools
import statistics
import time
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
_BACKENDS = {0: "math", 1: "flash", 2: "memory-efficient", 3: "cuDNN"}
"""torch._fused_sdp_choice, in the order of `SDPBackend`."""


def versions_and_device(work: Work) -> None:
    """Say what this is, and check that PyTorch has code for the card."""
    from pipeline.timing import peaks

    work.note(torch=torch.__version__, cuda=str(torch.version.cuda))
    product = torch.ones(64, 64, device=work.device) @ torch.ones(64, 64, device=work.device)
    work.check("a matrix product is right", bool((product == 64).all()))
    if not work.has_gpu:
        work.not_possible("card and NVML", "there is no GPU here")
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
    peak = peaks.peak_flops_per_s(name, "bf16")
    work.check("the card's peak is known", peak is not None, name)
    _nvml(work)
    _matrix_rate(work, peak)


def _nvml(work: Work) -> None:
    import pynvml

    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    use = pynvml.nvmlDeviceGetUtilizationRates(handle)
    work.note(nvml_utilisation_percent=use.gpu)
    work.check("NVML finds torch's GPU by its UUID", pynvml.nvmlDeviceGetUUID(handle) == uuid, uuid)


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
