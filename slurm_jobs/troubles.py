"""What failed slices met (memory, time, nodes), and what the next job asks for instead. PURE."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from slurm_jobs.common.resources import JobResources
from slurm_jobs.reconcile import StageStatus
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.spec.model import OnResume

OUT_OF_MEMORY, OUT_OF_TIME = "OUT_OF_MEMORY", "TIMEOUT"
"""Slurm's words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """What the failed slices of a stage met."""

    out_of_memory: bool = False
    out_of_time: bool = False
    nodes: tuple[str, ...] = ()
    """That a slice failed on, as Slurm writes them (`n[1-2]` is one)."""


NO_TROUBLE = Trouble()


def trouble_of(stage: StageStatus, answer: Answer, failed_nodes: Mapping[int, str]) -> Trouble:
    """What the failed slices met; `failed_nodes` by slice, as their own records say."""
    failed = [part for part in stage.slices if part.status == "failed"]
    nodes: dict[str, None] = {}
    for part in failed:
        task = answer.tasks.get(part.job_id or "")
        node = failed_nodes.get(part.slice_index) or (task.node_list if task else "")
        if node:
            nodes[node] = None
    return Trouble(
        out_of_memory=any(part.state == OUT_OF_MEMORY for part in failed),
        out_of_time=any(part.state == OUT_OF_TIME for part in failed),
        nodes=tuple(nodes),
    )


RAISED = ("mem_gb", "timeout_min")
"""Keys of `resources` that a resume may raise."""


def adjusted(
    asked: JobResources,
    wish: OnResume,
    trouble: Trouble,
    last: Mapping[str, Any],
    *,
    by_hand: Collection[str] = (),
) -> tuple[JobResources, list[str]]:
    """What the next job of a stage asks for, and in words what was changed.

    Args:
        asked: as the spec says.
        wish: what the spec wants done after a failure.
        trouble: what the failed slices met.
        last: the resources of the run's last plan: what was raised then stays raised.
        by_hand: keys that the user has just set; these are taken as they are.
    """
    changes = []
    mem_gb, timeout_min = asked.mem_gb, asked.timeout_min
    if wish.raise_mem_gb is not None and mem_gb is not None and "mem_gb" not in by_hand:
        mem_gb = max(mem_gb, last.get("mem_gb") or 0.0)
        if trouble.out_of_memory:
            changes.append(f"mem_gb {mem_gb:g} -> {mem_gb * wish.raise_mem_gb:g} (out of memory)")
            mem_gb *= wish.raise_mem_gb
    if wish.raise_timeout_min is not None and "timeout_min" not in by_hand:
        timeout_min = max(timeout_min, last.get("timeout_min") or 0.0)
        if trouble.out_of_time:
            raised = timeout_min * wish.raise_timeout_min
            changes.append(f"timeout_min {timeout_min:g} -> {raised:g} (out of time)")
            timeout_min = raised
    slurm = dict(asked.slurm)
    if wish.exclude_failed_nodes:
        given = str(slurm.get("exclude", "")), str(last.get("slurm", {}).get("exclude", ""))
        known = dict.fromkeys(name for names in given for name in split_nodes(names))
        new = [name for name in trouble.nodes if name not in known]
        if new:
            changes.append(f"without {', '.join(new)} (failed there)")
        if known or new:
            slurm["exclude"] = ",".join([*known, *new])
    return replace(asked, mem_gb=mem_gb, timeout_min=timeout_min, slurm=slurm), changes


def split_nodes(text: str) -> list[str]:
    """Node lists of Slurm's, taken apart at the commas outside of brackets: `a[1,3],b`."""
    names, depth, name = [], 0, ""
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and not depth:
            names.append(name)
            name = ""
        else:
            name += character
    return [part for part in [*names, name] if part]
