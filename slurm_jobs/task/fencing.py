"""Search for the intent of this job, for as long as a network file system may hide it.

The intent was in the ledger before sbatch was called. A node that does not see it reads a listing
that its NFS client has cached. That proves nothing, least of all that the job was superseded.
"""

from __future__ import annotations

import time

from slurm_jobs.run.intents import Intent, intents
from slurm_jobs.run.ledger import read_ledger
from slurm_jobs.run.paths import RunPaths

LISTING_PATIENCE_S = 60.0
"""Time for which NFS clients may answer from a cached listing: acdirmax of nfs(5)."""
_POLL_S = 2.0


def own_intent(paths: RunPaths, token: str) -> Intent | None:
    """Return the intent `token`; None if the ledger has not shown it in that time."""
    end_s = time.monotonic() + LISTING_PATIENCE_S
    while True:
        is_last = time.monotonic() >= end_s
        listed = intents(read_ledger(paths.ledger_dir))
        found = next((intent for intent in listed if intent.token == token), None)
        if found is not None or is_last:
            return found
        time.sleep(_POLL_S)


def unseen_reason(paths: RunPaths) -> str:
    """Return a message that a job's intent was not seen, and what to do."""
    return (
        f"this node does not see the job's own entry in {paths.ledger_dir}, after "
        f"{LISTING_PATIENCE_S:.0f} s: it sees an old state of that folder, or at another one; "
        "look at how the node mounts it, then resume"
    )
