"""Wait for all ranks without a timeout, for work that takes nodes different times.

A collective is given up after `collective_timeout_min`, with an error that names no rank. Here
ranks record their arrival in the store of the process group, and check it for the others.
"""

from __future__ import annotations

import logging
import time

import torch.distributed as dist

from slurm_jobs.base.index_ranges import ranges_text

log = logging.getLogger(__name__)

FIRST_WORD_S = 60.0
"""Time of waiting after which the log names the missing ranks; the interval then doubles."""
_FIRST_POLL_S = 0.02
_LAST_POLL_S = 1.0  # a thousand ranks send rank 0 a thousand small requests per second


def tell_node(store: dist.Store, rank: int, node_name: str) -> None:
    """Record the node of `rank`; every rank does it before any rank waits."""
    store.set(f"node/{rank}", node_name)


def arrive(store: dist.Store, what: str, *, rank: int, num_ranks: int) -> None:
    """Record that `rank` has done `what`, a name that is used once."""
    store.set(f"{what}/{rank}", "done")
    if store.add(f"{what}/num_done", 1) == num_ranks:
        store.set(f"{what}/all", "done")


def wait_for_all(store: dist.Store, what: str, *, num_ranks: int, speaks: bool) -> None:
    """Wait until all ranks have done `what`, without a timeout.

    If a rank has died, the supervisor ends those that wait for it.

    The rank that `speaks` logs for whom it waits.

    Raises:
        RuntimeError: rank 0, which has the store, is gone.
    """
    start_s, next_word_s, poll_s = time.monotonic(), FIRST_WORD_S, _FIRST_POLL_S
    while not store.check([f"{what}/all"]):
        waited_s = time.monotonic() - start_s
        if speaks and waited_s >= next_word_s:
            late = [rank for rank in range(num_ranks) if not store.check([f"{what}/{rank}"])]
            log.warning("%s: waiting for %.0f s by now for %s", what, waited_s, _named(store, late))
            next_word_s = 2 * waited_s
        time.sleep(poll_s)
        poll_s = min(_LAST_POLL_S, 2 * poll_s)


def _named(store: dist.Store, ranks: list[int]) -> str:
    """Return `n1 (ranks 0-3), n2 (rank 5)`; `no rank` if the last has just arrived."""
    by_node: dict[str, list[int]] = {}
    for rank in ranks:
        by_node.setdefault(store.get(f"node/{rank}").decode(), []).append(rank)
    nodes = (
        f"{node} (rank{'s' if len(there) > 1 else ''} {ranges_text(there)})"
        for node, there in by_node.items()
    )
    return ", ".join(nodes) or "no rank"
