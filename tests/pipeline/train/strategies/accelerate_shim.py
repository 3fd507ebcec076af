"""Makes accelerate shard on a CPU, which it does on GPUs alone; the only place that does so.

Without it accelerate takes an FSDP file on a CPU for DDP, without a word. With it a fresh state
that was asked for FSDP says that it is one of Intel's GPUs, which accelerate knows how to shard
over; device and process group stay those of the CPU.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from accelerate.state import PartialState
from accelerate.utils import DistributedType


@contextlib.contextmanager
def sharding_on_cpu() -> Iterator[None]:
    """While it lasts, an `Accelerator` that a file asks to shard does."""
    really = PartialState.__init__

    def init(self: PartialState, *args: Any, **kwargs: Any) -> None:
        is_fresh = not PartialState._shared_state
        really(self, *args, **kwargs)
        state = PartialState._shared_state
        is_cpu = state["distributed_type"] == DistributedType.MULTI_CPU
        if is_fresh and is_cpu and os.environ.get("ACCELERATE_USE_FSDP") == "true":
            state["distributed_type"] = DistributedType.MULTI_XPU

    PartialState.__init__ = init
    try:
        yield
    finally:
        PartialState.__init__ = really
