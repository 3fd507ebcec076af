"""What is saved of a training: model, optimizer, and the random-number generators of each rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from pipeline.training.checkpoint.info import Identity
from pipeline.training.ranks import Ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingState:
    """What a checkpoint holds of this rank."""

    model: nn.Module
    optimizer: torch.optim.Optimizer

    def collect(self, rank: int) -> dict[str, Any]:
        """The state as torch.distributed.checkpoint takes it; its tensors are the live ones."""
        model_state, optimizer_state = get_state_dict(self.model, self.optimizer)
        rng = {f"rank-{rank:05d}.{name}": value for name, value in rng_state().items()}
        return {"model": model_state, "optimizer": optimizer_state, "rng": rng}

    def put_back(self, loaded: Mapping[str, Any]) -> None:
        """Take over what was loaded into a state of `collect`; generators as far as it has them."""
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=loaded["model"],
            optim_state_dict=loaded["optimizer"],
        )
        _set_rng_state(loaded.get("rng", {}))


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoints:
    """The checkpoints of one training, as one rank of one attempt deals with them."""

    root: Path
    attempt: int
    ranks: Ranks
    state: TrainingState
    identity: Identity


def rng_state() -> dict[str, torch.Tensor]:
    """State of the generators of this rank, uint8 tensors on the host."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_rng_state(states: Mapping[str, torch.Tensor]) -> None:
    for name, value in states.items():
        if name.endswith(".cpu"):
            torch.set_rng_state(value)
        elif torch.cuda.is_available():
            torch.cuda.set_rng_state(value)
