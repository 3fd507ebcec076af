"""Saved state of a training: model, optimizer, and each rank's own state.

A rank's own state is that of its random number generators, and of objects that the training
names (`extra`: a gradient scaler, for example). With another number of ranks, generators start
as in a new attempt, because those of other ranks would repeat or miss random numbers; objects
get the state of rank 0.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.metadata import STORAGE_TYPES, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful

from pipeline.train.checkpoints.checkpoint_record import Identity
from pipeline.train.checkpoints.generator_state import rng_state, set_rng_state
from pipeline.train.checkpoints.rank_optimizer_state import (
    OPTIMIZER_NAME,
    OptimizerStates,
    join_parts,
    optimizer_values_of,
    parts_of_all_ranks,
)
from pipeline.train.checkpoints.state_differences import describe_value
from pipeline.train.optimizer.bitsandbytes_optimizer import LocalOptimizer
from pipeline.train.ranks.process_group import Ranks

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
            "extra": {_own(rank): {name: part.state_dict() for name, part in self._held().items()}},
        }

    def places(
        self, stored: Mapping[str, STORAGE_TYPES], rank: int, *, same_ranks: bool
    ) -> dict[str, Any]:
        """Return the state to load into: model, optimizer, and the rank's own `stored` state.

        A checkpoint of a training on a CPU has no GPU generator, and one of another precision
        has no scaler. Older ones have NumPy's generator as a value that is not a tensor.
        """
        places, source = self._collect_shared(), _own(rank if same_ranks else 0)
        if same_ranks:
            rng = {}
            for name, value in rng_state(self.device).items():
                kept = stored.get(f"rng.{source}.{name}")
                if kept is not None:
                    is_old = name == "numpy" and not isinstance(kept, TensorStorageMetadata)
                    rng[name] = None if is_old else value
            places["rng"] = {source: rng}
        extra = {name: part.state_dict() for name, part in self._held().items()}
        others: dict[str, dict[str, Any]] = {}
        optimizer = self.optimizer
        if isinstance(optimizer, LocalOptimizer) and (
            (optimizer.is_sharded and not same_ranks)
            or _describe_all(optimizer_values_of(stored, source))
            != _describe_all(optimizer.state_dict())
        ):
            del extra[OPTIMIZER_NAME]
            others = parts_of_all_ranks(stored)
        own = dict(others.get(source, {}))
        for name, state in extra.items():
            prefix = f"extra.{source}.{name}."
            if any(key.startswith(prefix) for key in stored):
                own[name] = state
            elif state:
                log.warning("the checkpoint has no state of %s: it is initialised", name)
        places["extra"] = {**others, source: own}
        return places

    def put_back(self, loaded: Mapping[str, Any]) -> None:
        """Apply what was loaded into `places`."""
        # `compare` has checked all names; `strict` would miss the untrained ones.
        options = StateDictOptions(strict=False)
        set_model_state_dict(self.model, loaded["model"], options=options)
        if "optimizer" in loaded:
            # The options of its groups stay those of the config. An older version saved an empty
            # group if only vectors were trained: torch would use its options for the other group,
            # which has none then.
            settings = [dict(group) for group in self.optimizer.param_groups]
            for values in settings:
                del values["params"]
            set_optimizer_state_dict(
                self.model, self.optimizer, dict(loaded["optimizer"]), options=_LEARNING_ALONE
            )
            for group, values in zip(self.optimizer.param_groups, settings, strict=True):
                group.update(values)
        self._put_back_own(loaded["extra"])
        # last: earlier actions may draw random numbers
        for states in loaded.get("rng", {}).values():
            set_rng_state(states)

    def _put_back_own(self, by_rank: Mapping[str, Mapping[str, Any]]) -> None:
        held, parts = self._held(), {}
        for rank, states in by_rank.items():
            for name, state in states.items():
                if name == OPTIMIZER_NAME:
                    parts[rank] = state
                else:
                    held[name].load_state_dict(state)
        if not isinstance(self.optimizer, LocalOptimizer) or not parts:
            return
        if len(parts) == 1 and self.optimizer.fits(*parts.values()):
            self.optimizer.load_state_dict(*parts.values())
        else:
            join_parts(self.optimizer, parts)

    def _held(self) -> Mapping[str, Stateful]:
        """Return the objects whose state is each rank's own."""
        if isinstance(self.optimizer, LocalOptimizer):
            return {**self.extra, OPTIMIZER_NAME: self.optimizer}
        return self.extra

    def _collect_shared(self) -> dict[str, Any]:
        """Return trained parameters and buffers, and the optimizer unless it is per rank."""
        known = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        names = known if self.learned is None else self.learned
        weights = get_model_state_dict(self.model)
        left_out = known - set(names)
        model = {name: value for name, value in weights.items() if name not in left_out}
        if isinstance(self.optimizer, LocalOptimizer):
            return {"model": model}
        had_state = bool(self.optimizer.state)
        optimizer = get_optimizer_state_dict(self.model, self.optimizer, options=_LEARNING_ALONE)
        if not had_state:
            # torch has initialised the state by an update with zero gradients. That changed only
            # the number of updates, which the bias correction of AdamW's next ones uses. The
            # tensors are those that were collected.
            for state in self.optimizer.state.values():
                state["step"].zero_()
        return {"model": model, "optimizer": optimizer}


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


def _describe_all(states: OptimizerStates) -> dict[tuple[str, str], str]:
    descriptions = {}
    for name, values in states.items():
        for key, value in values.items():
            descriptions[name, key] = describe_value(value)
    return descriptions


def _own(rank: int) -> str:
    return f"rank-{rank:05d}"
