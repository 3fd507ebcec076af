"""GPU type that a job got of several, kept for its later attempts.

A job with `gpu: [a100, v100]` takes the first type that is free. Started again on another, its
arithmetic would differ from that of its checkpoint. Slurm lets a user change the request of a
pending job, and a requeued job is pending while its processes still end.
"""

from __future__ import annotations

from slurm_jobs.run.orders import JobOrder
from slurm_jobs.schedulers.batch_script import with_own_constraint
from slurm_jobs.task.scontrol import output_of, told

_TRIES = 5
"""Attempts to call scontrol: the signal that ends a requeued job may end that process, too."""


def kind_of_node(order: JobOrder, node: str) -> str:
    """Return the GPU type of a node among those requested; empty if unknown."""
    if len(order.resources.gpu) < 2:
        return ""
    shown = output_of(["scontrol", "show", "node", "-o", node]) or ""
    words = dict(word.partition("=")[::2] for word in shown.split())
    names = set(words.get("ActiveFeatures", "").split(","))
    names |= set(words.get("Gres", "").replace("(", ":").split(":"))
    return next((kind for kind in order.resources.gpu if kind in names), "")


def keep_kind(order: JobOrder, element_id: str, kind: str) -> str | None:
    """Restrict a requeued job to this GPU type; return the reason if that fails."""
    own = order.resources.slurm.get("constraint")
    features = f"Features={with_own_constraint(kind, own)}"
    problem = None
    for _ in range(_TRIES):
        problem = told(["scontrol", "update", f"JobId={element_id}", features])
        if problem is None:
            return None
    return problem
