"""Causes of failed slices (memory, time, nodes), and the resources that the next job requests.

PURE.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from slurm_jobs.common.resources import JobResources
from slurm_jobs.reconcile import StageStatus
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.spec.model import OnResume

OUT_OF_MEMORY, OUT_OF_TIME = "OUT_OF_MEMORY", "TIMEOUT"
"""Job states of Slurm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """Causes of the failed slices of a stage."""

    out_of_memory: bool = False
    out_of_time: bool = False
    mem_gb: float | None = None
    """Largest memory of a slice that exhausted it, if known."""
    timeout_min: float | None = None
    """Longest time limit of a slice that reached it, for one slice."""
    nodes: tuple[str, ...] = ()
    """Nodes on which a slice failed, as Slurm writes them (`n[1-2]` is one)."""


NO_TROUBLE = Trouble()


@dataclass(frozen=True, kw_only=True, slots=True)
class Had:
    """Resources and node of a failed slice, from its records and its job's request."""

    node: str = ""
    """Node on which it failed; empty if no record names it."""
    mem_gb: float | None = None
    timeout_min: float | None = None
    """Limit for this slice alone, if its array task processed several."""


def trouble_of(stage: StageStatus, answer: Answer, had: Mapping[int, Had]) -> Trouble:
    """Return the causes of the failed slices; `had` by slice."""
    failed = [part for part in stage.slices if part.status == "failed"]
    nodes: dict[str, None] = {}
    for part in failed:
        task = answer.tasks.get(part.job_id or "")
        node = had.get(part.slice_index, Had()).node or (task.node_list if task else "")
        if node:
            nodes[node] = None
    by_memory = [had.get(p.slice_index, Had()) for p in failed if p.state == OUT_OF_MEMORY]
    by_time = [had.get(p.slice_index, Had()) for p in failed if p.state == OUT_OF_TIME]
    return Trouble(
        out_of_memory=bool(by_memory),
        out_of_time=bool(by_time),
        mem_gb=_most(part.mem_gb for part in by_memory),
        timeout_min=_most(part.timeout_min for part in by_time),
        nodes=tuple(nodes),
    )


def _most(amounts: Iterable[float | None]) -> float | None:
    return max((amount for amount in amounts if amount is not None), default=None)


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
    """Return the resources that the next job of a stage requests, and the changes in words.

    Raised is what the failed slices had, so that a resume which was cut off does not raise twice.

    Args:
        asked: request in the spec.
        wish: the spec's `on_resume`.
        trouble: causes of the failed slices.
        last: the resources of the run's last plan: what was raised then stays raised.
        by_hand: keys that the user has just set; these are taken as they are.
    """
    changes = []
    mem_gb, timeout_min = asked.mem_gb, asked.timeout_min
    if wish.raise_mem_gb is not None and mem_gb is not None and "mem_gb" not in by_hand:
        mem_gb = max(mem_gb, last.get("mem_gb") or 0.0)
        if trouble.out_of_memory:
            had_gb = trouble.mem_gb or mem_gb
            mem_gb = max(mem_gb, had_gb * wish.raise_mem_gb)
            changes.append(f"mem_gb {had_gb:g} -> {mem_gb:g} (out of memory)")
    if wish.raise_timeout_min is not None and "timeout_min" not in by_hand:
        timeout_min = max(timeout_min, last.get("timeout_min") or 0.0)
        if trouble.out_of_time:
            had_min = trouble.timeout_min or timeout_min
            timeout_min = max(timeout_min, had_min * wish.raise_timeout_min)
            changes.append(f"timeout_min {had_min:g} -> {timeout_min:g} (out of time)")
    slurm, new = _without(asked.slurm, last, trouble.nodes if wish.exclude_failed_nodes else None)
    if new:
        changes.append(f"without {', '.join(new)} (failed there)")
    return replace(asked, mem_gb=mem_gb, timeout_min=timeout_min, slurm=slurm), changes


def _without(
    slurm: Mapping[str, Any], last: Mapping[str, Any], nodes: Collection[str] | None
) -> tuple[dict[str, Any], list[str]]:
    """Add `nodes` to the nodes that sbatch excludes; return the options and the new nodes."""
    if nodes is None:
        return dict(slurm), []
    given = str(slurm.get("exclude", "")), str(last.get("slurm", {}).get("exclude", ""))
    known = dict.fromkeys(name for names in given for name in split_nodes(names))
    new = [name for name in nodes if name not in known]
    exclude = {"exclude": ",".join([*known, *new])} if known or new else {}
    return {**slurm, **exclude}, new


def split_nodes(text: str) -> list[str]:
    """Split Slurm's node lists at the commas outside of brackets: `a[1,3],b`."""
    names, depth, name = [], 0, ""
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and not depth:
            names.append(name)
            name = ""
        else:
            name += character
    return [part for part in [*names, name] if part]
