"""Loss scaling under fp16, whose small gradients would be zero; nothing under other precisions.

torch's scaler decides on each rank whether gradients overflowed. If only one rank sees an
overflow (under ddp: an error after the reduction), scales and weights would diverge. So here it
only multiplies and divides: the verdict of all ranks decides whether a step is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pipeline.train.device.rank_device import RankDevice
from pipeline.train.optimizer.local_adamw import LocalAdamW
from pipeline.train.verdict import QueuedVerdict
from slurm_jobs.formats.configs.training_parts import ScalerConfig


class _Scaler(torch.amp.GradScaler):
    """Scaler that also divides gradients in host memory, once the scale is copied there."""

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        """Like torch, which copies both to the host without waiting for them (2.13)."""
        gradients = (p.grad for group in optimizer.param_groups for p in group["params"])
        if inv_scale.device.type != "cpu" and any(
            gradient is not None and gradient.device.type == "cpu" for gradient in gradients
        ):
            inv_scale, found_inf = inv_scale.cpu(), found_inf.cpu()  # SYNC: only with offloading
        return super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)

    def update_by(self, is_bad: torch.Tensor) -> None:
        """Update the scale from the verdict of all ranks instead of this rank's; no SYNC."""
        for state in self._per_optimizer_states.values():
            state["found_inf_per_device"] = {is_bad.device: is_bad}
        self.update()


class LossScaling:
    """Wraps `torch.amp.GradScaler`; a `Stateful` of torch.distributed.checkpoint."""

    def __init__(self, config: ScalerConfig, rank_device: RankDevice) -> None:
        self.is_on = rank_device.precision == "fp16"
        """True if occasional overflows of gradients are expected."""
        self.num_skips_in_a_row = 0
        self.num_skips = 0
        """Skips of the whole training."""
        self._scaler = _Scaler(
            rank_device.device.type,
            init_scale=config.init_scale,
            growth_interval=config.growth_interval,
            enabled=self.is_on,
        )

    def backward(self, loss: torch.Tensor) -> None:
        """Run backward of the scaled loss: a float32 scalar."""
        self._scaler.scale(loss).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients, once per step, before they are clipped."""
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, verdict: QueuedVerdict) -> None:
        """Update if the verdict is good; otherwise change nothing, and halve the scale.

        No SYNC if the optimizer skips on the device. After many updates the scale grows.
        """
        # Only torch's fused kernels take a value on the device; those of bitsandbytes do not, and
        # offloaded parameters are updated on the host.
        parameters = (each for group in optimizer.param_groups for each in group["params"])
        if isinstance(optimizer, LocalAdamW) and all(
            each.device == verdict.is_bad.device for each in parameters
        ):
            optimizer.found_inf = verdict.is_bad  # type: ignore[attr-defined]
            optimizer.step()
            del optimizer.found_inf  # type: ignore[attr-defined]
        elif verdict.read().is_finite:  # SYNC: before the update
            optimizer.step()
        if self.is_on:
            self._scaler.update_by(verdict.is_bad)

    def count(self, *, is_skipped: bool) -> None:
        """Count a step whose verdict the host has read."""
        self.num_skips_in_a_row = self.num_skips_in_a_row + 1 if is_skipped else 0
        self.num_skips += is_skipped

    @property
    def scale_on_device(self) -> torch.Tensor | None:
        """Factor of this step's loss; None if nothing is scaled."""
        return self._scaler._get_scale_async() if self.is_on else None  # noqa: SLF001

    @property
    def scale(self) -> float:
        """Factor of the next loss; SYNC."""
        return float(self._scaler.get_scale())

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: numbers, equal on all ranks."""
        if not self.is_on:
            return {}
        scaler_state = self._scaler.state_dict()
        return {
            "scale": float(scaler_state["scale"]),
            "growth_tracker": int(scaler_state["_growth_tracker"]),
            "num_skips_in_a_row": self.num_skips_in_a_row,
            "num_skips": self.num_skips,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state; intervals and factors are those of the config."""
        now = self._scaler.state_dict()
        self._scaler.load_state_dict(
            {**now, "scale": state["scale"], "_growth_tracker": state["growth_tracker"]}
        )
        self.num_skips_in_a_row = state["num_skips_in_a_row"]
        self.num_skips = state["num_skips"]
