"""Which of several types of GPU a job got, and that its later attempts get the same.

A job that takes whichever type comes first (`gpu: [a100, v100]`) may be started again on another:
with other arithmetic than the checkpoint that it goes on from. Slurm lets a user change what a
pending job asks for, and a job that was just requeued is pending, while its processes still end.
"""

from __future__ import annotations

from slurm_jobs.run.orders import JobOrder
from slurm_jobs.schedulers.batch_script import with_own_constraint
from slurm_jobs.task.scontrol import output_of, told

_TRIES = 5
"""The signal that ends a requeued job may end the program that changes it, too."""


def kind_of_node(order: JobOrder, node: str) -> str:
    """The type among those that the job may take which a node has; empty if that is not known."""
    if len(order.resources.gpu) < 2:
        return ""
    shown = output_of(["scontrol", "show", "node", "-o", node]) or ""
    words = dict(word.partition("=")[::2] for word in shown.split())
    names = set(words.get("ActiveFeatures", "").split(","))
    names |= set(words.get("Gres", "").replace("(", ":").split(":"))
    return next((kind for kind in order.resources.gpu if kind in names), "")


def keep_kind(order: JobOrder, element_id: str, kind: str) -> str | None:
    """Have a requeued job start on this type alone; None, or why that was not possible."""
    own = order.resources.slurm.get("constraint")
    features = f"Features={with_own_constraint(kind, own)}"
    problem = None
    for _ in range(_TRIES):
        problem = told(["scontrol", "update", f"JobId={element_id}", features])
        if problem is None:
            return None
    return problem
