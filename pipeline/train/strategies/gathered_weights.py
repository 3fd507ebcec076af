"""Temporarily full weights of a sharded model on every rank."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn
from torch.distributed.fsdp import FSDPModule

from pipeline.train.strategies.fsdp_units import forget_passes, groups_of, units_within


@contextlib.contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Gather full weights in the compute dtype; entered and left by all ranks at once.

    Within, passes without gradients enter no collective, so each rank may run its own.
    Afterwards torch's resharding settings are restored, and it forgets these passes.
    """
    if isinstance(model, FSDPModule):
        # Torch takes the first module that runs as the root, and keeps the root's weights between
        # the passes unless set otherwise. Before a first step nothing has run.
        model._get_fsdp_state()._lazy_init()  # noqa: SLF001 - no public way
    units, groups = units_within(model), groups_of(model)
    mesh_infos = [group.post_forward_mesh_info for group in groups]
    for unit in units:
        unit.set_reshard_after_forward(False, recurse=False)
        unit.unshard()
    try:
        yield
    finally:
        for unit in units:
            unit.reshard()
        forget_passes(model)
        for group, mesh_info in zip(groups, mesh_infos, strict=True):
            group.post_forward_mesh_info = mesh_info
