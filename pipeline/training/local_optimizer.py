"""An optimizer of bitsandbytes over what each rank has of the parameters.

Its kernels know no DTensors: given sharded parameters, all of its optimizers fail. An update of
AdamW is element by element, so it may be made shard by shard. But 8-bit state has a scale for each
256 numbers in a row, and those rows are the shard's: the state of other shards is another state,
and is no DTensor either. So each rank keeps its own, in checkpoints as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

_SHARED = ("lr", "weight_decay")
"""What of a group may change from step to step."""
_TABLES = ("qmap1", "qmap2")
"""Constants beside the state of a parameter."""


class LocalOptimizer(torch.optim.Optimizer):
    """Looks like an optimizer of the model's parameters; a `Stateful` of one rank."""

    def __init__(
        self,
        groups: Sequence[Mapping[str, Any]],
        make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
        names: Mapping[int, str],
    ) -> None:
        """`make` makes the one of bitsandbytes; `names` are those of parameters, by their id."""
        own = [{**group, "params": list(group["params"])} for group in groups]
        super().__init__(own, {})
        self._locals = [[_local(p) for p in group["params"]] for group in self.param_groups]
        self._names = [[names[id(p)] for p in group["params"]] for group in self.param_groups]
        inner_groups = [
            {**group, "params": [local for local in found if local.numel()]}
            for group, found in zip(groups, self._locals, strict=True)
        ]
        self._inner: Any = make(inner_groups)
        for group, inner in zip(self.param_groups, self._inner.param_groups, strict=True):
            group.update({key: inner[key] for key in _SHARED})

    @property
    def is_sharded(self) -> bool:
        """Whether other ranks have other parts of the parameters, and so of the state."""
        return any(isinstance(p, DTensor) for group in self.param_groups for p in group["params"])

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the rank's part of each parameter that has a gradient."""
        assert closure is None
        for group, inner, found in self._groups():
            inner.update({key: group[key] for key in _SHARED})
            for parameter, local in zip(group["params"], found, strict=True):
                # Or it would go on updating memory that the model has left.
                assert _whole_or_shard(parameter).data_ptr() == local.data_ptr()
                gradient = parameter.grad
                local.grad = None if gradient is None else _whole_or_shard(gradient)
        self._inner.step()
        for _, _, found in self._groups():
            for local in found:
                local.grad = None

    def state_dict(self) -> dict[str, Any]:
        """By name of the parameter; its tensors are the live ones, made where there are none."""
        return {name: self._state_of(*place) for name, place in self._places()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken of the same parts of the parameters."""
        places = dict(self._places())
        assert places.keys() == state_dict.keys()
        for name, loaded in state_dict.items():
            found = self._inner.state[places[name][1]]
            self._state_of(*places[name])
            for key, value in loaded.items():
                if isinstance(value, torch.Tensor):
                    found[key].copy_(value)  # in place: pages stay pages
                else:
                    found[key] = value

    def _groups(self) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[nn.Parameter]]]:
        yield from zip(self.param_groups, self._inner.param_groups, self._locals, strict=True)

    def _places(self) -> Iterator[tuple[str, tuple[int, nn.Parameter]]]:
        """Name of each parameter of which this rank has a part, with number of group and part."""
        for number, found in enumerate(self._locals):
            for name, local in zip(self._names[number], found, strict=True):
                if local.numel():
                    yield name, (number, local)

    def _state_of(self, number: int, local: nn.Parameter) -> dict[str, Any]:
        inner, group = self._inner, self._inner.param_groups[number]
        if not inner.state[local]:
            index = next(i for i, one in enumerate(group["params"]) if one is local)
            inner.init_state(group, local, number, index)
        return {key: value for key, value in inner.state[local].items() if key not in _TABLES}


def _local(parameter: torch.Tensor) -> nn.Parameter:
    """The same memory as a parameter of its own."""
    return nn.Parameter(_whole_or_shard(parameter.detach()))


def _whole_or_shard(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
