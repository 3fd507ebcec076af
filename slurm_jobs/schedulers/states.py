"""Slurm's own words for the state of a job or array task that has not ended. PURE.

Every other word means that it has: `man squeue`, JOB STATE CODES, of Slurm 22.05 to 25.05.
And its word for why one that is pending will never start.
"""

from __future__ import annotations

PENDING_STATES = frozenset(
    {
        "PENDING",
        "CONFIGURING",  # has its nodes; they are booting
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",  # requeued and held
    }
)
"""Will start, or start again."""

RUNNING_STATES = frozenset(
    {"RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
)
"""Has its nodes and may still change something."""

LIVING_STATES = PENDING_STATES | RUNNING_STATES

NEVER = "DependencyNeverSatisfied"
"""The reason of a job that waits for what can never be."""
