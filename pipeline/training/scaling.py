"""Scaling of the loss under fp16, whose small gradients would be zero; nothing under others.

torch's scaler decides on each rank for itself whether gradients overflowed, and where one rank
alone sees it (under ddp: what is wrong after the reduction) scales and weights would part. So here
it only multiplies and divides: whether a step is skipped is what the ranks agreed on, which the
loop tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pipeline.training.device import Workplace
from slurm_jobs.common.stage_config.sharding import ScalerConfig


class _Scaler(torch.amp.GradScaler):
    """Divides gradients that lie in the host's memory, too, once the scale has come there."""

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        """As torch, which copies both to the host without waiting for them (2.13)."""
        if inv_scale.device.type != "cpu" and _lie_on_host(optimizer):
            inv_scale, found_inf = inv_scale.cpu(), found_inf.cpu()  # SYNC: offloaded ones alone
        return super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)


def _lie_on_host(optimizer: torch.optim.Optimizer) -> bool:
    parameters = (each for group in optimizer.param_groups for each in group["params"])
    return any(each.grad is not None and each.grad.device.type == "cpu" for each in parameters)


class Scaling:
    """Around `torch.amp.GradScaler`; a `Stateful` of torch.distributed.checkpoint."""

    def __init__(self, config: ScalerConfig, workplace: Workplace) -> None:
        self.is_on = workplace.precision == "fp16"
        """Whether a gradient that overflows is expected now and then."""
        self.num_skips_in_a_row = 0
        self.num_skips = 0
        """Of the whole training."""
        self._scaler = _Scaler(
            workplace.device.type,
            init_scale=config.init_scale,
            growth_interval=config.growth_interval,
            enabled=self.is_on,
        )

    def backward(self, loss: torch.Tensor) -> None:
        """Of the scaled loss: a float32 scalar."""
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients, once a step, before they are clipped."""
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update; after many such steps the scale grows."""
        optimizer.step()
        self._scaler.update()
        self.num_skips_in_a_row = 0

    def skip(self) -> None:
        """Leave the update out, and halve the scale; SYNC: the host reads the scale."""
        before = self._scaler.state_dict()
        # With a value, `update` forgets what this rank alone found.
        self._scaler.update(before["scale"] * before["backoff_factor"])
        self._scaler.load_state_dict({**self._scaler.state_dict(), "_growth_tracker": 0})
        self.num_skips_in_a_row += 1
        self.num_skips += 1

    @property
    def scale(self) -> float:
        """What the next loss is multiplied by; SYNC."""
        return float(self._scaler.get_scale())

    def state_dict(self) -> dict[str, Any]:
        """What goes into a checkpoint: numbers, equal on all ranks."""
        if not self.is_on:
            return {}
        found = self._scaler.state_dict()
        return {
            "scale": float(found["scale"]),
            "growth_tracker": int(found["_growth_tracker"]),
            "num_skips_in_a_row": self.num_skips_in_a_row,
            "num_skips": self.num_skips,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken; intervals and factors are those of the config."""
        now = self._scaler.state_dict()
        self._scaler.load_state_dict(
            {**now, "scale": state["scale"], "_growth_tracker": state["growth_tracker"]}
        )
        self.num_skips_in_a_row = state["num_skips_in_a_row"]
        self.num_skips = state["num_skips"]
