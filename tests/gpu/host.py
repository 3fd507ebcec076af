"""Between host and device: pinned buffers, the verdict of a step, and an update that is skipped."""

from __future__ import annotations

import copy
import math
import time
from typing import cast

import torch
from torch import nn

from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.data.prefetch import make_pool
from pipeline.train.optimizer.local_adamw import LocalAdamW
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.verdict import judge
from tests.gpu.work import Work
from tests.pipeline.train.strategies.trainer import Alone

_BATCH_BYTES = 33_600_000
"""Just above a power of two, to which torch's own pinned allocator would round up."""
_MOST_SHARE = 9 / 8
_NUM_ROUNDS = 100
_SLOW_CYCLES = 200_000_000
"""About 0.1 s of a GPU."""
_QUEUED_S = 0.02
_OPTIONS = {"lr": 1e-2, "betas": (0.9, 0.95), "weight_decay": 0.1, "fused": True}


def buffers(work: Work) -> None:
    """Take buffers as loader threads do; they are pinned, no larger than needed, and reused."""
    device = work.torch_device
    pool = BufferPool(pin_memory=work.has_gpu)

    def rounds() -> None:
        for number in range(_NUM_ROUNDS):
            array = pool.take(1_000_000 + 400_000 * number)
            array[:: 1 << 12] = number % 256
            if work.has_gpu:
                torch.from_numpy(array).to(device, non_blocking=True)
                torch.cuda.synchronize()
            del array

    with make_pool(1, device if work.has_gpu else None) as threads:
        array = threads.submit(pool.take, _BATCH_BYTES).result()
        array[:] = torch.arange(_BATCH_BYTES, dtype=torch.int64).remainder(251).numpy()
        sent = torch.from_numpy(array)
        work.check("pinned on a GPU alone", sent.is_pinned() == work.has_gpu, sent.is_pinned())
        arrived = sent.to(device, non_blocking=True)
        if work.has_gpu:
            torch.cuda.synchronize()
        work.check("the copy has the bytes", torch.equal(arrived.cpu(), sent))
        del sent, array, arrived
        (buffer,) = pool._free
        share = len(buffer) / _BATCH_BYTES
        work.check("no more is pinned than 9/8 of the need", share <= _MOST_SHARE, f"{share:.3f}")
        del buffer
        threads.submit(rounds).result()
    work.check(f"{_NUM_ROUNDS} growing batches leave one buffer", pool.num_free <= 2, pool.num_free)


def verdict(work: Work) -> None:
    """Queue a verdict behind a slow kernel: the host goes on, and reads the same numbers later."""
    alone = cast("Ranks", Alone())
    loss, norm, scale = (torch.tensor(x, device=work.device) for x in (2.5, 3.25, 8.0))
    judge(loss, norm, scale, alone).read()  # loads the kernels
    if work.has_gpu:
        torch.cuda.synchronize()
        torch.cuda._sleep(_SLOW_CYCLES)
    began = time.perf_counter()
    queued = judge(loss, norm, scale, alone)
    queued_s = time.perf_counter() - began
    if work.has_gpu:
        assert queued._mark is not None
        work.check("the numbers go to pinned memory", queued._numbers.is_pinned())
        work.check("the device has not come to it", not queued._mark.query())
        work.note(verdict_queued_ms=1e3 * queued_s)
        work.at_most("seconds to queue it", queued_s, _QUEUED_S)
    read = queued.read()
    numbers = (read.is_finite, read.loss, read.local_loss, read.grad_norm, read.scale)
    work.check("it has the numbers", numbers == (True, 2.5, 2.5, 3.25, 8.0), numbers)
    infinite = torch.tensor(math.inf, device=work.device)
    bad = judge(loss, infinite, None, alone)
    work.check("an infinite norm is bad", bad.is_bad.item() == 1.0 and not bad.read().is_finite)


def device_skip(work: Work) -> None:
    """Step with `found_inf`: 1 changes no bit, though gradients are NaN; 0 changes no update."""
    torch.manual_seed(0)
    shapes = ((257, 33), (5,), (1024, 1024))
    ours = [nn.Parameter(torch.randn(shape, device=work.device)) for shape in shapes]
    optimizer = LocalAdamW(ours, **_OPTIONS)  # type: ignore[arg-type]
    _set_gradients(ours)
    optimizer.step()
    theirs = copy.deepcopy(ours)
    reference = torch.optim.AdamW(theirs, **_OPTIONS)  # type: ignore[arg-type]
    reference.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    before = _numbers_of(optimizer, ours)
    for parameter in ours:
        parameter.grad = torch.full_like(parameter, math.nan)
    _step(optimizer, 1.0, work)
    work.check("a bad step changes nothing", _same(_numbers_of(optimizer, ours), before))

    _set_gradients(ours)
    _step(optimizer, 0.0, work)
    for mine, other in zip(ours, theirs, strict=True):
        other.grad = mine.grad
    reference.step()
    same = _same(_numbers_of(optimizer, ours), _numbers_of(reference, theirs))
    work.check("a good step is torch's, bit for bit", same)


def _step(optimizer: LocalAdamW, is_bad: float, work: Work) -> None:
    optimizer.found_inf = torch.tensor(is_bad, device=work.device)  # type: ignore[attr-defined]
    optimizer.step()
    del optimizer.found_inf  # type: ignore[attr-defined]


def _set_gradients(parameters: list[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)


def _numbers_of(
    optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]
) -> list[torch.Tensor]:
    keys = ("exp_avg", "exp_avg_sq", "step")
    state = [optimizer.state[parameter][key] for parameter in parameters for key in keys]
    return [tensor.detach().clone() for tensor in (*parameters, *state)]


def _same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def everything(work: Work) -> None:
    """Run all of this page in one process."""
    buffers(work)
    verdict(work)
    device_skip(work)
