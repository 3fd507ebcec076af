"""Saved state of a training: model, optimizer, and each rank's own state.

A rank's own state is that of its random number generators, and of objects that the training
names (`extra`: a gradient scaler, for example). With another number of ranks, generators start
as in a new attempt, because those of other ranks would repeat or miss random numbers; objects
get the state of rank 0.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.checkpoint.metadata import STORAGE_TYPES
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful

from pipeline.training.checkpoint import optimizer_parts
from pipeline.training.checkpoint.info import Identity
from pipeline.training.local_optimizer import LocalOptimizer
from pipeline.training.ranks import Ranks

log = logging.getLogger(__name__)

_CPU = torch.device("cpu")
_LEARNING_ALONE = StateDictOptions(ignore_frozen_params=True)
"""An optimizer has state of the currently trained parameters only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingState:
    """State of this rank for a checkpoint."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    learned: frozenset[str] | None = None
    """Names of the parameters trained so far, in this phase or before; others are not saved.
    None: all."""
    extra: Mapping[str, Stateful] = field(default_factory=dict)
    """More objects with state, by name; each rank's own is saved."""
    device: torch.device = _CPU
    """Device of the computation: its generator is part of the state if it is a GPU."""

    def collect(self, rank: int) -> dict[str, Any]:
        """Return the state for torch.distributed.checkpoint; its tensors are live."""
        return {
            **self._collect_shared(),
            "rng": {_own(rank): rng_state(self.device)},
            "extra": {_own(rank): {name: held.state_dict() for name, held in self._held().items()}},
        }

    def places(
        self, stored: Mapping[str, STORAGE_TYPES], rank: int, *, same_ranks: bool
    ) -> dict[str, Any]:
        """Return the state to load into: model, optimizer, and the rank's own `stored` state.

        A checkpoint of a training on a CPU has no GPU generator, and one of another precision
        has no scaler.
        """
        places, source = self._collect_shared(), _own(rank if same_ranks else 0)
        if same_ranks:
            rng = rng_state(self.device)
            places["rng"] = {
                source: {k: v for k, v in rng.items() if f"rng.{source}.{k}" in stored}
            }
        extra = {name: held.state_dict() for name, held in self._held().items()}
        others: dict[str, dict[str, Any]] = {}
        if self._is_of_other_parts(stored, source, same_ranks=same_ranks):
            del extra[optimizer_parts.NAME]
            others = optimizer_parts.parts_of_all_ranks(stored)
        there = [n for n in extra if _has(stored, f"extra.{source}.{n}.")]
        for name in extra.keys() - there:
            if extra[name]:
                log.warning("the checkpoint has no state of %s: it is initialised", name)
        mine = {**others.get(source, {}), **{name: extra[name] for name in there}}
        places["extra"] = {**others, source: mine}
        return places

    def put_back(self, loaded: Mapping[str, Any]) -> None:
        """Apply what was loaded into `places`."""
        self.put_back_model(loaded)
        if "optimizer" in loaded:
            self._put_back_optimizer(loaded["optimizer"])
        self._put_back_own(loaded["extra"])
        # last: earlier actions may draw random numbers
        for states in loaded.get("rng", {}).values():
            set_rng_state(states)

    def _put_back_optimizer(self, loaded: Mapping[str, Any]) -> None:
        """Load the optimizer's state; the options of its groups stay those of the config.

        An older version saved an empty group if only vectors were trained: torch would use its
        options for the other group, which has none then.
        """
        groups = self.optimizer.param_groups
        options = [{k: v for k, v in group.items() if k != "params"} for group in groups]
        set_optimizer_state_dict(self.model, self.optimizer, dict(loaded), options=_LEARNING_ALONE)
        for group, own in zip(self.optimizer.param_groups, options, strict=True):
            group.update(own)

    def _put_back_own(self, by_rank: Mapping[str, Mapping[str, Any]]) -> None:
        held, parts = self._held(), {}
        for rank, states in by_rank.items():
            for name, state in states.items():
                if name == optimizer_parts.NAME:
                    parts[rank] = state
                else:
                    held[name].load_state_dict(state)
        if not isinstance(self.optimizer, LocalOptimizer) or not parts:
            return
        if len(parts) == 1 and self.optimizer.fits(*parts.values()):
            self.optimizer.load_state_dict(*parts.values())
        else:
            optimizer_parts.join_parts(self.optimizer, parts)

    def collect_model(self) -> dict[str, Any]:
        """Return the model's part of the state: trained parameters, and buffers."""
        known = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        kept = known if self.learned is None else self.learned
        state = get_model_state_dict(self.model)
        return {"model": {n: v for n, v in state.items() if n in kept or n not in known}}

    def put_back_model(self, loaded: Mapping[str, Any]) -> None:
        """Apply the model's part of the loaded state."""
        # `matching` has checked all names; `strict` would miss the untrained ones.
        options = StateDictOptions(strict=False)
        set_model_state_dict(self.model, loaded["model"], options=options)

    def _held(self) -> Mapping[str, Stateful]:
        """Return the objects whose state is each rank's own."""
        if isinstance(self.optimizer, LocalOptimizer):
            return {**self.extra, optimizer_parts.NAME: self.optimizer}
        return self.extra

    def _is_of_other_parts(
        self, stored: Mapping[str, STORAGE_TYPES], rank_name: str, *, same_ranks: bool
    ) -> bool:
        """Check whether a per-rank optimizer state must be joined from all ranks."""
        if not isinstance(self.optimizer, LocalOptimizer):
            return False
        if self.optimizer.is_sharded and not same_ranks:
            return True
        mine = self.optimizer.state_dict()
        return not optimizer_parts.has_same_parts(stored, mine, rank_name)

    def _collect_shared(self) -> dict[str, Any]:
        if isinstance(self.optimizer, LocalOptimizer):
            return self.collect_model()
        had_state = bool(self.optimizer.state)
        optimizer = get_optimizer_state_dict(self.model, self.optimizer, options=_LEARNING_ALONE)
        if not had_state:
            _forget_updates(self.optimizer)
        return {**self.collect_model(), "optimizer": optimizer}


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterPhase:
    """Later phase: it may have checkpoints already, with all that was trained before it."""

    root: Path
    identity: Identity
    """Except for what it follows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoints:
    """Checkpoints of one training, for one rank of one attempt."""

    root: Path
    attempt: int
    ranks: Ranks
    state: TrainingState
    identity: Identity
    later: Sequence[LaterPhase] = ()
    """In order."""
    can_begin: bool = True
    """False if the phase before was not loaded, because this one has a checkpoint."""


def rng_state(device: torch.device) -> dict[str, Any]:
    """Return this rank's generator states by name: uint8 tensors on the host, or tuples.

    A GPU's is included if `device` is one; reading it takes some hundred MB of its memory.
    """
    states = {
        "cpu": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002 - what libraries draw from
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_rng_state(states: Mapping[str, Any]) -> None:
    """Restore the generators in `states`."""
    setters = {
        "cpu": torch.set_rng_state,
        "python": random.setstate,
        "numpy": np.random.set_state,
    }
    for name, value in states.items():
        if name in setters:
            setters[name](value)
        elif torch.cuda.is_available():
            torch.cuda.set_rng_state(value)


def _forget_updates(optimizer: torch.optim.Optimizer) -> None:
    """Undo torch's initialisation of an optimizer state: an update with zero gradients.

    It changes only the number of updates, which the bias correction of AdamW's next ones uses.
    The tensors are those that were collected.
    """
    for state in optimizer.state.values():
        state["step"].zero_()


def _own(rank: int) -> str:
    return f"rank-{rank:05d}"


def _has(stored: Mapping[str, STORAGE_TYPES], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in stored)
