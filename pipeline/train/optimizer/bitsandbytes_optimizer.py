"""Optimizer of bitsandbytes over each rank's part of the parameters.

Its kernels do not support DTensors: all of its optimizers fail with sharded parameters. An
update of AdamW is element-wise, so it can be made shard by shard. But 8-bit state has a scale
for each 256 consecutive numbers of the shard: other shards have other state, and it is not a
DTensor either. So each rank stores its own in checkpoints, too. With other shards, training
continues from all ranks' states, unpacked, concatenated, and packed again.

bitsandbytes is imported on demand, because checkpoints test any optimizer for this class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from pipeline.train.optimizer.local_parts import local_part

BLOCK_SIZE = 256
"""Numbers of 8-bit state that share a scale."""


_SHARED = ("lr", "weight_decay")
"""Values of a group that may change from step to step."""


_TABLES = ("qmap1", "qmap2")
"""Constants in the state of a parameter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _LocalParameter:
    """This rank's part of a parameter."""

    name: str
    whole: nn.Parameter
    local: nn.Parameter
    """Shares the memory of the part; may be empty."""
    group: int
    """Index of its group."""


class LocalOptimizer(torch.optim.Optimizer):
    """Acts as an optimizer of the model's parameters; a `Stateful` of one rank."""

    def __init__(
        self,
        groups: Sequence[Mapping[str, Any]],
        make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
        names: Mapping[int, str],
    ) -> None:
        """Create it; `make` creates bitsandbytes' optimizer; `names` are keyed by parameter id."""
        own_groups = [{**group, "params": list(group["params"])} for group in groups]
        super().__init__(own_groups, {})
        self._parameters: list[_LocalParameter] = []
        inner_groups = []
        for number, group in enumerate(own_groups):
            inner_parameters = []
            for whole in group["params"]:
                local = nn.Parameter(local_part(whole.detach()))
                self._parameters.append(
                    _LocalParameter(name=names[id(whole)], whole=whole, local=local, group=number)
                )
                if local.numel():
                    inner_parameters.append(local)
            inner_groups.append({**groups[number], "params": inner_parameters})
        self._own = {part.name: part for part in self._parameters if part.local.numel()}
        self._inner: Any = make(inner_groups)
        for group, inner in zip(self.param_groups, self._inner.param_groups, strict=True):
            group.update({key: inner[key] for key in _SHARED})

    @property
    def is_sharded(self) -> bool:
        """True if other ranks have other parts of the parameters, and so of the state."""
        return any(isinstance(part.whole, DTensor) for part in self._parameters)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the rank's part of each parameter that has a gradient."""
        assert closure is None
        for group, inner in zip(self.param_groups, self._inner.param_groups, strict=True):
            inner.update({key: group[key] for key in _SHARED})
        for part in self._parameters:
            # Otherwise it would update memory that the model no longer uses.
            assert local_part(part.whole).data_ptr() == part.local.data_ptr()
            gradient = part.whole.grad
            part.local.grad = None if gradient is None else local_part(gradient)
        self._inner.step()  # SYNC: bitsandbytes waits for the GPU after each parameter
        for part in self._parameters:
            part.local.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state by name of the parameter; tensors are live, created if missing."""
        return {name: self._state_of(part) for name, part in self._own.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the state of the same parts of the parameters."""
        assert self._own.keys() == state_dict.keys()
        for name, loaded in state_dict.items():
            part = self._own[name]
            self._state_of(part)
            state = self._inner.state[part.local]
            for key, value in loaded.items():
                if isinstance(value, torch.Tensor):
                    state[key].copy_(value)  # in place: pages stay pages
                else:
                    state[key] = value

    def fits(self, state_dict: Mapping[str, Any]) -> bool:
        """Check whether the state is of the same parts of the parameters."""
        mine = self.state_dict()
        return mine.keys() == state_dict.keys() and all(
            mine[name].keys() == state_dict[name].keys()
            and mine[name]["state1"].shape == state_dict[name]["state1"].shape
            for name in mine
        )

    def shapes(self) -> dict[str, torch.Size]:
        """Return the shapes of the full parameters, by name."""
        return {part.name: part.whole.shape for part in self._parameters}

    @torch.no_grad()
    def take_whole(self, name: str, step: int, moments: Sequence[torch.Tensor]) -> None:
        """Load the state of a full parameter: 8-bit state is rounded to this rank's blocks.

        `moments` are float32, of the parameter's shape: of gradients, and of their squares.
        """
        part = self._own.get(name)
        if part is None:  # of another rank
            return
        self._state_of(part)
        state = self._inner.state[part.local]
        state["step"] = step
        for key, moment in zip("12", moments, strict=True):
            values = moment.to(part.local.device)
            if isinstance(part.whole, DTensor):
                shape, offset = compute_local_shape_and_global_offset(
                    part.whole.shape, part.whole.device_mesh, part.whole.placements
                )
                sides = zip(offset, shape, strict=True)
                values = values[tuple(slice(at, at + size) for at, size in sides)]
            values = values.contiguous()
            if state[f"state{key}"].dtype == torch.uint8:
                from bitsandbytes.functional import quantize_blockwise

                code = state[f"qmap{key}"]
                values, packed = quantize_blockwise(values, code=code, blocksize=BLOCK_SIZE)
                state[f"absmax{key}"].copy_(packed.absmax)
            state[f"state{key}"].copy_(values)

    def unpack(self, state: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the two moments, flat and float32, from any rank's state of a parameter."""
        return [
            _unpack(state[f"state{key}"], state.get(f"absmax{key}"), is_signed=key == "1")
            for key in "12"
        ]

    def _state_of(self, part: _LocalParameter) -> dict[str, Any]:
        """Return the state of a part that is not empty; created if missing."""
        inner, local = self._inner, part.local
        if not inner.state[local]:
            group = inner.param_groups[part.group]
            (index,) = (i for i, parameter in enumerate(group["params"]) if parameter is local)
            inner.init_state(group, local, part.group, index)
        return {key: value for key, value in inner.state[local].items() if key not in _TABLES}


def _unpack(moment: torch.Tensor, absmax: torch.Tensor | None, *, is_signed: bool) -> torch.Tensor:
    if absmax is None:
        return moment.flatten().float()
    from bitsandbytes.functional import create_dynamic_map, dequantize_blockwise

    code = create_dynamic_map(signed=is_signed).to(moment.device)
    whole = dequantize_blockwise(moment, absmax=absmax, code=code, blocksize=BLOCK_SIZE)
    return whole.flatten()
