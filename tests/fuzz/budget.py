"""How long the fuzz tests look, and that none of them hangs or eats the memory.

`make test` draws a quarter of the examples that a test names, the same each time. `make test-slow`
draws all of them, others each time, as `SLURM_JOBS_FUZZ=1` asks for; 20 draws twenty times as many.
"""

from __future__ import annotations

import os
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, Phase, settings

FACTOR = int(os.environ.get("SLURM_JOBS_FUZZ", "0"))
MAX_EXAMPLE_S = 20
"""Of processor time, which a busy machine does not lengthen; far above what any takes."""
MAX_BYTES = 64 << 20
"""Beyond what is held at the start of an example."""


def examples(number: int) -> Callable[[Any], Any]:
    """Draw a share of so many examples of a test, or the factor times as many."""
    return settings(
        max_examples=number * FACTOR or number // 4,
        derandomize=not FACTOR,
        database=None,
        deadline=None,
        # Making an example smaller takes minutes; whoever mends it asks for that by the variable.
        phases=list(Phase) if FACTOR else [Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def bounded(*, memory: bool = False) -> Iterator[None]:
    """Fail where the block takes too long or, if that is counted, too much memory."""

    def hangs(*_: object) -> None:
        message = f"an example takes more than {MAX_EXAMPLE_S} s of processor time"
        raise AssertionError(message)

    before = signal.signal(signal.SIGVTALRM, hangs)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_EXAMPLE_S)
    if memory:
        tracemalloc.start()
    try:
        yield
        assert not memory or tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
