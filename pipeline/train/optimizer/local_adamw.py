"""AdamW on each rank's part of sharded parameters; see `local_parts` for the reason."""

from __future__ import annotations

from typing import Any

import torch

from pipeline.train.optimizer.local_parts import local_part


class LocalAdamW(torch.optim.AdamW):
    """AdamW that updates local tensors; its parameters and its state stay DTensors."""

    def _init_group(self, group: dict[str, Any], *lists: list[Any]) -> Any:
        """Fill `lists` with the tensors to update, like torch, but with their local parts."""
        has_complex = super()._init_group(group, *lists)
        for tensors in lists:
            tensors[:] = [local_part(tensor) for tensor in tensors]
        return has_complex
