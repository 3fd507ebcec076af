"""Optimizer of bitsandbytes over each rank's part of the parameters.

Its kernels do not support DTensors: all of its optimizers fail with sharded parameters. An
update of AdamW is element-wise, so it can be made shard by shard. But 8-bit state has a scale
for each 256 consecutive numbers of the shard: other shards have other state, and it is not a
DTensor either. So each rank stores its own in checkpoints, too. With other shards, training
continues from all ranks' states, unpacked, concatenated, and packed again.

bitsandbytes is imported on demand, because checkpoints test any optimizer for this class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
        # parameters that share this memory
        self._locals = [
            [nn.Parameter(local_part(p.detach())) for p in group["params"]]
            for group in self.param_groups
        ]
        self._names = [[names[id(p)] for p in group["params"]] for group in self.param_groups]
        inner_groups = [
            {**group, "params": [local for local in tensors if local.numel()]}
            for group, tensors in zip(groups, self._locals, strict=True)
        ]
        self._inner: Any = make(inner_groups)
        for group, inner in zip(self.param_groups, self._inner.param_groups, strict=True):
            group.update({key: inner[key] for key in _SHARED})

    @property
    def is_sharded(self) -> bool:
        """True if other ranks have other parts of the parameters, and so of the state."""
        return any(isinstance(p, DTensor) for group in self.param_groups for p in group["params"])

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the rank's part of each parameter that has a gradient."""
        assert closure is None
        for group, inner, tensors in self._groups():
            inner.update({key: group[key] for key in _SHARED})
            for parameter, local in zip(group["params"], tensors, strict=True):
                # Otherwise it would update memory that the model no longer uses.
                assert local_part(parameter).data_ptr() == local.data_ptr()
                gradient = parameter.grad
                local.grad = None if gradient is None else local_part(gradient)
        self._inner.step()  # SYNC: bitsandbytes waits for the GPU after each parameter
        for _, _, tensors in self._groups():
            for local in tensors:
                local.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state by name of the parameter; tensors are live, created if missing."""
        return {name: self._state_of(*place) for name, place in self._places()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the state of the same parts of the parameters."""
        places = dict(self._places())
        assert places.keys() == state_dict.keys()
        for name, loaded in state_dict.items():
            state = self._inner.state[places[name][1]]
            self._state_of(*places[name])
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
        return {
            name: parameter.shape
            for names, group in zip(self._names, self.param_groups, strict=True)
            for name, parameter in zip(names, group["params"], strict=True)
        }

    @torch.no_grad()
    def take_whole(self, name: str, step: int, moments: Sequence[torch.Tensor]) -> None:
        """Load the state of a full parameter: 8-bit state is rounded to this rank's blocks.

        `moments` are float32, of the parameter's shape: of gradients, and of their squares.
        """
        place = dict(self._places()).get(name)
        if place is None:  # of another rank
            return
        self._state_of(*place)
        number, local = place
        index = self._names[number].index(name)
        parameter = self.param_groups[number]["params"][index]
        state = self._inner.state[local]
        state["step"] = step
        for key, moment in zip("12", moments, strict=True):
            part = moment.to(local.device)
            if isinstance(parameter, DTensor):
                shape, offset = compute_local_shape_and_global_offset(
                    parameter.shape, parameter.device_mesh, parameter.placements
                )
                sides = zip(offset, shape, strict=True)
                part = part[tuple(slice(at, at + size) for at, size in sides)]
            part = part.contiguous()
            if state[f"state{key}"].dtype == torch.uint8:
                from bitsandbytes.functional import quantize_blockwise

                code = state[f"qmap{key}"]
                part, packed = quantize_blockwise(part, code=code, blocksize=BLOCK_SIZE)
                state[f"absmax{key}"].copy_(packed.absmax)
            state[f"state{key}"].copy_(part)

    def unpack(self, state: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the two moments, flat and float32, from any rank's state of a parameter."""
        return [
            _unpack(state[f"state{key}"], state.get(f"absmax{key}"), is_signed=key == "1")
            for key in "12"
        ]

    def _groups(self) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[nn.Parameter]]]:
        yield from zip(self.param_groups, self._inner.param_groups, self._locals, strict=True)

    def _places(self) -> Iterator[tuple[str, tuple[int, nn.Parameter]]]:
        """Yield the name of each parameter that this rank has a part of, with group and part."""
        for number, tensors in enumerate(self._locals):
            for name, local in zip(self._names[number], tensors, strict=True):
                if local.numel():
                    yield name, (number, local)

    def _state_of(self, number: int, local: nn.Parameter) -> dict[str, Any]:
        inner, group = self._inner, self._inner.param_groups[number]
        if not inner.state[local]:
            index = next(i for i, parameter in enumerate(group["params"]) if parameter is local)
            inner.init_state(group, local, number, index)
        return {key: value for key, value in inner.state[local].items() if key not in _TABLES}


def _unpack(moment: torch.Tensor, absmax: torch.Tensor | None, *, is_signed: bool) -> torch.Tensor:
    if absmax is None:
        return moment.flatten().float()
    from bitsandbytes.functional import create_dynamic_map, dequantize_blockwise

    code = create_dynamic_map(signed=is_signed).to(moment.device)
    whole = dequantize_blockwise(moment, absmax=absmax, code=code, blocksize=BLOCK_SIZE)
    return whole.flatten()
