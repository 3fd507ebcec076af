"""Verdict of a step: whether its loss and its gradients are finite on every rank.

The device computes it after the gradients and skips a bad update without the host
(`LossScaling.step`). The host reads it one step later, when the device has the next step to
compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pipeline.train.ranks.process_group import Ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class StepVerdict:
    """Verdict on the host; the two local values differ between ranks."""

    is_finite: bool
    """Loss and gradient norm, on every rank; if not, no rank has applied its update."""
    loss: float
    """Loss of the step, summed over the ranks."""
    local_loss: float
    """This rank's part."""
    grad_norm: float
    """Norm of this rank's gradients, before clipping."""
    scale: float
    """Factor of the loss under fp16; 1 otherwise."""
    group_losses: Sequence[float] = ()
    """Losses of `judge`, summed over the ranks."""


class QueuedVerdict:
    """Verdict that is queued on the device; the same on every rank."""

    def __init__(self, is_bad: torch.Tensor, numbers: torch.Tensor) -> None:
        """Store `is_bad`, a float32 scalar, 1 or 0, and the `numbers` of `judge`, on the device."""
        self.is_bad = is_bad
        self._verdict: StepVerdict | None = None
        # No SYNC: to pinned memory, which the host may read once the device has passed the event.
        self._numbers = numbers.to("cpu", non_blocking=True)
        self._mark: torch.cuda.Event | None = None
        if numbers.device.type == "cuda":
            self._mark = torch.cuda.Event()
            self._mark.record()

    def read(self) -> StepVerdict:
        """Return the verdict; SYNC the first time: waits until the device has computed it."""
        if self._verdict is None:
            if self._mark is not None:
                self._mark.synchronize()
            local_loss, grad_norm, scale, loss, num_bad, *group_losses = self._numbers.tolist()
            self._verdict = StepVerdict(
                is_finite=not num_bad,
                loss=loss,
                local_loss=local_loss,
                grad_norm=grad_norm,
                scale=scale,
                group_losses=group_losses,
            )
        return self._verdict


def judge(
    loss: torch.Tensor,
    grad_norm: torch.Tensor,
    scale: torch.Tensor | None,
    ranks: Ranks,
    group_losses: torch.Tensor | None = None,
) -> QueuedVerdict:
    """Queue the verdict of all ranks; a collective of the device, no SYNC.

    `loss` is this rank's part, `grad_norm` that before clipping, `scale` the factor of the loss
    under fp16: scalars on the device. `group_losses` are this rank's parts of further losses,
    float32 [num_groups], which are added up with the loss.
    """
    mine = torch.stack([loss, grad_norm]).double()
    num_bad = mine.isfinite().all().logical_not()
    further = [] if group_losses is None else [group_losses.double()]
    shared = torch.cat([torch.stack([mine[0], num_bad.double()]), *further])
    ranks.sum_on_device(shared)
    scale = torch.ones_like(loss) if scale is None else scale
    numbers = torch.cat([mine, scale.double().reshape(1), shared])
    return QueuedVerdict((shared[1] > 0).float(), numbers)
