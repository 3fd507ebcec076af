"""Distribution of weights that one rank has read: a node holds one full model, not one per rank.

The other ranks build the model on the device "meta", which has shapes and no memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from slurm_jobs.base.errors import StageConfigError


def share_weights(
    sharded: nn.Module, weights: Mapping[str, torch.Tensor], *, device: torch.device, offload: bool
) -> None:
    """Give every rank its shards of rank 0's weights, tensor by tensor; a collective.

    `sharded` has real parameters on rank 0, and is on "meta" elsewhere; `weights` are rank 0's, as
    before sharding. Buffers go to `device`; shards too, unless `offload`.
    """
    if dist.get_rank() != 0:
        sharded.to_empty(device="cpu" if offload else device)
    # Most buffers are in no state dict: they are computed when a model is built. By name, because
    # a model without weights may have been built in another order.
    buffers = dict(sharded.named_buffers(remove_duplicate=False))
    for name, buffer in sorted(buffers.items()):
        value = buffer.to(device)
        dist.broadcast(value, src=0)
        owner, _, own_name = name.rpartition(".")
        setattr(sharded.get_submodule(owner), own_name, value)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, cpu_offload=offload)
    set_model_state_dict(sharded, dict(weights), options=options)


def check_can_be_shared(model: nn.Module) -> None:
    """Check a model on "meta", before it is sharded.

    Raises:
        StageConfigError: it has tensors that are neither parameters nor buffers.
    """
    strange = [
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    ]
    if strange:
        message = (
            f"strategy fsdp2: {', '.join(strange)} cannot be sent from rank 0, because they are "
            "neither parameters nor buffers of the model: set `strategy: ddp`"
        )
        raise StageConfigError(message)
