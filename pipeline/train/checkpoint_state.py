"""State in a checkpoint, and whether it fits a training."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import STORAGE_TYPES, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful

from pipeline.train.checkpoint_files import Identity
from pipeline.train.generator_state import rng_state, set_rng_state
from pipeline.train.optimizer.bitsandbytes_optimizer import LocalOptimizer
from pipeline.train.ranks import Ranks
from slurm_jobs.shared.errors import StageConfigError

# Reasons why torch could not save or load a checkpoint, in the system's words.
#
# torch raises one `CheckpointException` on all ranks, which is not an `Exception`. It contains
# the pickled errors of the failed ranks, without their causes.


def explain(error: CheckpointException | OSError) -> str:
    """Return `rank 1: [Errno 28] No space left on device`, for each rank that failed."""
    if not isinstance(error, CheckpointException):
        return str(error)
    failures = sorted(error.failures.items())
    texts = (f"rank {rank}: {str(failure) or repr(failure)}" for rank, (failure, _) in failures)
    return "; ".join(texts) or "torch does not state a reason"


# Comparison of a checkpoint with a training's state: names, shapes, dtypes.
#
# torch.distributed.checkpoint silently casts tensors to another dtype, and ignores tensors that
# are not in the state.


_MOST_NAMES = 5
"""Number of names per kind of difference in a message."""
_SHARED = ("model.", "optimizer.")
"""State that all ranks share; of the rest each rank loads its part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """Differences between a checkpoint and a state; each is a name, and how it differs."""

    missing: Sequence[str]
    """In the state, but not in the checkpoint."""
    unexpected: Sequence[str]
    """Tensors in the checkpoint, but not in the state."""
    different: Sequence[str]
    """Other shape or dtype, or a tensor in one and a value in the other."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.different)

    def __str__(self) -> str:
        kinds = {
            "not in the checkpoint": self.missing,
            "not in the model or optimizer": self.unexpected,
            "different": self.different,
        }
        texts = []
        for kind, names in kinds.items():
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            texts += [f"{kind}: {', '.join(names[:_MOST_NAMES])}{more}"] if names else []
        return "; ".join(texts)


def compare(stored: Mapping[str, STORAGE_TYPES], wanted: Mapping[str, Any]) -> Differences:
    """Return the differences that prevent loading.

    Options of an optimizer that only another version of torch has are ignored.

    `stored` is a checkpoint's content by flat name, `wanted` the nested state to load it into.
    """
    planner = dcp.DefaultLoadPlanner()
    planner.set_up_planner(dict(wanted))
    flat = planner.state_dict
    return Differences(
        missing=sorted(flat.keys() - stored.keys()),
        unexpected=sorted(
            name
            for name in stored.keys() - flat.keys()
            if name.startswith(_SHARED) and isinstance(stored[name], TensorStorageMetadata)
        ),
        different=[
            f"{name} ({there} in the checkpoint, {here} now)"
            for name in sorted(flat.keys() & stored.keys())
            if (there := _describe(stored[name])) != (here := _describe(flat[name]))
        ],
    )


def _describe(value: Any) -> str:
    """Describe a value, stored or not; a DTensor by its full shape."""
    if isinstance(value, TensorStorageMetadata):
        return f"{tuple(value.size)} of {value.properties.dtype}"
    return (
        f"{tuple(value.shape)} of {value.dtype}" if isinstance(value, torch.Tensor) else "a value"
    )


# Per-rank optimizer state, loaded by other ranks or another sharding.


NAME = "optimizer"
"""Name of a rank's own state among that of other objects."""
_States = Mapping[str, Mapping[str, Any]]
"""By name of the parameter and of the value."""


def parts_of_all_ranks(stored: Mapping[str, STORAGE_TYPES]) -> dict[str, dict[str, Any]]:
    """Allocate the stored state of all ranks, by rank, in the layout of `TrainingState`."""
    ranks = sorted({key.split(".", 2)[1] for key in stored if key.startswith("extra.")})
    return {
        rank: {
            NAME: {
                name: {
                    key: torch.empty(value.size, dtype=value.properties.dtype)
                    if isinstance(value, TensorStorageMetadata)
                    else 0
                    for key, value in values.items()
                }
                for name, values in _of_rank(stored, rank).items()
            }
        }
        for rank in ranks
    }


def join_parts(optimizer: LocalOptimizer, by_rank: Mapping[str, _States]) -> None:
    """Concatenate the ranks' states, and load this rank's part into the optimizer.

    Shards are rows, in the order of the ranks; if several ranks have the same, the first is
    used.

    Raises:
        StageConfigError: part of a parameter is missing in the checkpoint.
    """
    for name, shape in optimizer.shapes().items():
        states = [by_rank[rank][name] for rank in sorted(by_rank) if name in by_rank[rank]]
        moments: list[list[torch.Tensor]] = [[], []]
        for state in states:
            if sum(part.numel() for part in moments[0]) < shape.numel():
                for parts, part in zip(moments, optimizer.unpack(state), strict=True):
                    parts.append(part)
        num = sum(part.numel() for part in moments[0])
        if num != shape.numel():
            message = (
                f"the checkpoint's optimizer has {num} of {shape.numel()} numbers of {name}: "
                "continue with the number of ranks and the sharding that it was written with, "
                "or start the stage again with `slurm-jobs resume RUN --again STAGE`"
            )
            raise StageConfigError(message)
        whole = [torch.cat(parts).view(shape) for parts in moments]
        optimizer.take_whole(name, states[0]["step"], whole)


def _of_rank(stored: Mapping[str, STORAGE_TYPES], rank: str) -> dict[str, dict[str, STORAGE_TYPES]]:
    prefix = f"extra.{rank}.{NAME}."
    nested: dict[str, dict[str, STORAGE_TYPES]] = defaultdict(dict)
    for flat, value in stored.items():
        if flat.startswith(prefix):
            name, _, key = flat.removeprefix(prefix).rpartition(".")
            nested[name][key] = value
    return dict(nested)


# Saved state of a training: model, optimizer, and each rank's own state.
#
# A rank's own state is that of its random number generators, and of objects that the training
# names (`extra`: a gradient scaler, for example). With another number of ranks, generators start
# as in a new attempt, because those of other ranks would repeat or miss random numbers; objects
# get the state of rank 0.


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
            or _describe_all(_of_rank(stored, source)) != _describe_all(optimizer.state_dict())
        ):
            del extra[NAME]
            others = parts_of_all_ranks(stored)
        there = [
            name
            for name in extra
            if any(key.startswith(f"extra.{source}.{name}.") for key in stored)
        ]
        for name in extra.keys() - there:
            if extra[name]:
                log.warning("the checkpoint has no state of %s: it is initialised", name)
        mine = {**others.get(source, {}), **{name: extra[name] for name in there}}
        places["extra"] = {**others, source: mine}
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
            groups = self.optimizer.param_groups
            settings = [{k: v for k, v in group.items() if k != "params"} for group in groups]
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
                if name == NAME:
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
            return {**self.extra, NAME: self.optimizer}
        return self.extra

    def _collect_shared(self) -> dict[str, Any]:
        """Return trained parameters and buffers, and the optimizer unless it is per rank."""
        known = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        names = known if self.learned is None else self.learned
        weights = get_model_state_dict(self.model)
        model = {name: v for name, v in weights.items() if name in names or name not in known}
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


def _describe_all(states: _States) -> dict[str, dict[str, str]]:
    return {name: {k: _describe(v) for k, v in values.items()} for name, values in states.items()}


def _own(rank: int) -> str:
    return f"rank-{rank:05d}"
