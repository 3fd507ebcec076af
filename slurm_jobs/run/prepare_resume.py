"""Preparation of a resume: adopt lost jobs, query the others, cancel those in the way.

`sort_out` decides about each job; `prepare_resume` collects the facts, `clear_the_way` acts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.formats.records.job_resources import JobResources
from slurm_jobs.formats.records.stage_outputs import named_outputs, wrong_outputs
from slurm_jobs.plan.planned import Done
from slurm_jobs.plan.stage_dependencies import Slices, barred_slices, corresponds
from slurm_jobs.run.doubts import doubts_text
from slurm_jobs.run.observe import question_about
from slurm_jobs.run.submission import Connections
from slurm_jobs.run_folder.cleanings import read_cleanings, removed_since, without_removed
from slurm_jobs.run_folder.ledger import Intent, append_entry, latest_intents
from slurm_jobs.run_folder.orders import read_order
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_completion, read_run
from slurm_jobs.run_folder.run_values import RunRecords
from slurm_jobs.schedulers.job_states import LIVING_STATES
from slurm_jobs.schedulers.protocol import Answer, Scheduler
from slurm_jobs.spec.model import OnResume
from slurm_jobs.status.outdated import Ages, ages_of, outdated_slices
from slurm_jobs.status.reconcile import reconcile
from slurm_jobs.status.run_status import RunStatus, StageStatus
from slurm_jobs.status.slice_status import SliceStatus, completed_slices


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


def trouble_of(
    paths: RunPaths, newest: Mapping[int, Intent], stage: StageStatus, answer: Answer
) -> Trouble:
    """Return the causes of the failed slices of a stage, as far as records and orders show them.

    Args:
        paths: of the run.
        newest: the newest intent by slice.
        stage: the stage.
        answer: answer of the scheduler; names the node of a slice if its record does not.
    """
    nodes: dict[str, None] = {}
    mem_gb: list[float | None] = []
    timeout_min: list[float] = []
    order_of = functools.cache(lambda token: read_order(paths.job_json(token)))
    for part in stage.slices:
        if part.status != "failed":
            continue
        task = answer.tasks.get(part.job) if part.job is not None else None
        node = task.node_list if task else ""
        if part.ending is not None:
            node = read_completion(paths, stage.stage.name, part.ending).failed_node or node
        if node:
            nodes[node] = None
        order = order_of(newest[part.slice_index].token)
        if part.state == "OUT_OF_MEMORY":
            mem_gb.append(order.resources.mem_gb)
        elif part.state == "TIMEOUT":
            timeout_min.append(order.resources.timeout_min / (order.slices_per_task or 1))
    return Trouble(
        out_of_memory=bool(mem_gb),
        out_of_time=bool(timeout_min),
        mem_gb=max((gb for gb in mem_gb if gb is not None), default=None),
        timeout_min=max(timeout_min, default=None),
        nodes=tuple(nodes),
    )


RAISED = ("mem_gb", "timeout_min")
"""Keys of `resources` that a resume may raise."""


def adjusted(
    resources: JobResources,
    wish: OnResume,
    trouble: Trouble,
    last: Mapping[str, Any],
    *,
    by_hand: Collection[str] = (),
) -> tuple[JobResources, list[str]]:
    """Return the resources that the next job of a stage requests, and the changes in words.

    The base is what the failed slices had, so that an interrupted resume does not raise twice.

    Args:
        resources: request in the spec.
        wish: the spec's `on_resume`.
        trouble: causes of the failed slices.
        last: the resources of the run's last plan: what was raised then stays raised.
        by_hand: keys that the user has just set; these are taken as they are.
    """
    changes = []
    mem_gb, timeout_min = resources.mem_gb, resources.timeout_min
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
    slurm = dict(resources.slurm)
    if wish.exclude_failed_nodes:
        excluded = str(slurm.get("exclude", "")), str(last.get("slurm", {}).get("exclude", ""))
        known = dict.fromkeys(name for names in excluded for name in split_nodes(names))
        new = [name for name in trouble.nodes if name not in known]
        if known or new:
            slurm["exclude"] = ",".join([*known, *new])
        if new:
            changes.append(f"without {', '.join(new)} (failed there)")
    return replace(resources, mem_gb=mem_gb, timeout_min=timeout_min, slurm=slurm), changes


def split_nodes(text: str) -> list[str]:
    """Split Slurm's node lists at the commas outside of brackets: `a[1,3],b`."""
    return re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """Starting point of a resume."""

    done: Done
    connections: Connections
    cancel: tuple[JobKey, ...]
    """Jobs and array elements to cancel; the scheduler has just reported all of them as alive."""
    superseded: Mapping[str, Slices] = field(default_factory=dict)
    """Slices that no earlier job, alive or forgotten, may process, by the token of its intent."""
    adopted: Mapping[str, str] = field(default_factory=dict)
    """Job ids that were recovered, by stage."""
    damaged: Mapping[str, Slices] = field(default_factory=dict)
    """Slices whose output no longer matches their completion record, by stage."""
    problems: tuple[str, ...] = ()
    """Sources that failed; facts that only they have are treated as unknown."""
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    """Causes of failed slices, by stage."""


def sort_out(
    run: RunRecords,
    status: RunStatus,
    fingerprints: Mapping[str, str],
    void: Mapping[str, Slices] | None = None,
    *,
    kept: Mapping[str, Mapping[int, str]] | None = None,
    living: Collection[JobKey] = (),
    afters: Mapping[str, Mapping[str, str]] | None = None,
) -> Preparation:
    """Return which slices are complete, which continue, and which jobs must be cancelled. PURE.

    `void` slices run again, complete or running: they have lost output, or the user requests it.
    `kept` slices count although their job had another fingerprint: the token of that job by stage
    and slice. `living` are all queued or running jobs and elements. `afters` are the current kinds
    of dependency, by stage and parent, where they differ.
    """
    completed: dict[str, Slices] = {}
    live: dict[str, Slices] = {}
    num_running: dict[str, int] = {}
    active: dict[str, Mapping[JobKey, Slices]] = {}
    ending: dict[str, Sequence[JobKey]] = {}
    cancel: list[JobKey] = []
    superseded: dict[str, Slices] = {}
    again: dict[str, Slices] = {}
    ages: dict[str, Ages] = {}
    for stage in status.stages:
        name, num_slices = stage.stage.name, stage.stage.num_slices
        after = (afters or {}).get(name, stage.stage.after)
        newest = latest_intents(run.intents, name)
        unwanted = (void or {}).get(name, frozenset()) | outdated_slices(after, newest, ages)
        kept_tokens = (kept or {}).get(name, {})
        current = {
            index: intent
            for index, intent in newest.items()
            if index not in unwanted
            and (
                intent.fingerprint == fingerprints.get(name)
                or intent.token == kept_tokens.get(index)
            )
        }
        barred = barred_slices(after, again, num_slices)
        waiting_for_all = _waiting_for_all(stage, newest, run.intents, again)
        live[name] = _continuing(stage, newest, current, barred | waiting_for_all)
        # Barred slices stay in it: the plan takes them out, see `missing_parts`.
        completed[name] = completed_slices(run.records[name], current)
        active[name] = _jobs_of(live[name], newest)
        num_running[name] = _num_running(live[name], newest)
        doomed = _with_living_job(stage) - live[name]
        older = _older_living(run.intents, name, newest, living)
        # New jobs wait for those that may be running, or start before they are cancelled. A
        # stranded one does not start.
        may_run = _with_job_and_status(stage.slices, {"running", "waiting"})
        ending[name] = (*_jobs_of(doomed & may_run, newest), *older)
        # Not those that Slurm has forgotten: another job may have their id.
        alive = {part.slice_index for part in stage.slices if part.state in LIVING_STATES}
        cancel += [*_jobs_of(doomed & alive, newest), *older]
        for index in sorted(doomed):
            token = newest[index].token
            superseded[token] = superseded.get(token, frozenset()) | {index}
        ages[name] = ages_of(after, {} if stage.is_not_needed else newest, ages, num_slices)
        missing = frozenset(range(num_slices)) - live[name] - (completed[name] - barred)
        again[name] = barred if stage.is_not_needed else missing
    return Preparation(
        done=Done(completed=completed, active=live, num_running=num_running),
        connections=Connections(active=active, ending=ending),
        cancel=tuple(cancel),
        superseded=superseded,
    )


def _with_living_job(stage: StageStatus) -> Slices:
    """Return slices that a job may be working on, or may still reach."""
    may_live = frozenset(s.slice_index for s in stage.slices if s.may_live)
    return may_live & _with_job_and_status(stage.slices, {"running", "waiting", "stranded"})


def _continuing(
    stage: StageStatus, newest: Mapping[int, Intent], current: Collection[int], barred: Slices
) -> Slices:
    """Return slices whose job stays as it is: it does `current` work, and none that is `barred`.

    An element with several slices ends with all of them. If one has failed, the element will end as
    failed, and jobs that depend on it would never start.
    """
    may_continue = frozenset(
        index
        for index in _with_job_and_status(stage.slices, {"running", "waiting"}) - barred
        if index in current and index not in newest[index].cancelled_slices
    )
    lost = _with_job_and_status(stage.slices, {"failed", "cancelled", "unknown"})
    lost &= frozenset(current)
    must_end = (_with_living_job(stage) - may_continue) | lost
    ending_elements = {newest[index].element(index) for index in must_end}
    return frozenset(i for i in may_continue if newest[i].element(i) not in ending_elements)


def _waiting_for_all(
    stage: StageStatus,
    newest: Mapping[int, Intent],
    intents: Iterable[Intent],
    again: Mapping[str, Slices],
) -> Slices:
    """Return slices in jobs that wait for a whole stage of which something runs again.

    The spec asks for `aftercorr`, but the two arrays had different elements, so Slurm got
    `afterok`. A job with a started slice no longer waits.
    """
    waiting = _with_job_and_status(stage.slices, {"waiting", "stranded"})
    newest_by_token = {intent.token: intent for intent in newest.values()}
    waiting_for_all: Slices = frozenset()
    for parent, kind in stage.stage.after.items():
        if kind != "aftercorr" or not again.get(parent):
            continue
        newest_of_parent = latest_intents(intents, parent)
        for intent in newest_by_token.values():
            slices = [i for i in intent.slices if newest.get(i) is intent]
            if not waiting.issuperset(slices):
                continue
            jobs = [newest_of_parent[i] for i in slices if i in newest_of_parent]
            parent_jobs = {job.token: job for job in jobs}.values()
            elements_correspond = all(
                corresponds(intent.slices, intent.slices_per_task, job.slices, job.slices_per_task)
                for job in parent_jobs
            )
            if not elements_correspond:
                waiting_for_all |= frozenset(slices)
    return waiting_for_all


def _older_living(
    intents: Iterable[Intent], stage: str, newest: Mapping[int, Intent], living: Collection[JobKey]
) -> tuple[JobKey, ...]:
    """Return living elements of a stage's earlier intents whose slices all have newer intents."""
    elements = (
        intent.element(index)
        for intent in intents
        if intent.stage == stage
        for index in intent.slices
        if all(newest[i] is not intent for i in intent.slices_of_same_element(index))
    )
    return tuple(dict.fromkeys(e for e in elements if e is not None and e in living))


def _with_job_and_status(slices: Iterable[SliceStatus], statuses: set[str]) -> Slices:
    return frozenset(s.slice_index for s in slices if s.job is not None and s.status in statuses)


def _jobs_of(chosen: Slices, newest: Mapping[int, Intent]) -> dict[JobKey, Slices]:
    """Return the jobs of the chosen slices, or their elements if not all slices are chosen."""
    jobs: dict[JobKey, Slices] = {}
    for index in sorted(chosen):
        intent = newest[index]
        whole = all(i in chosen and newest.get(i) is intent for i in intent.slices)
        job = intent.job if whole else intent.element(index)
        assert job is not None
        jobs[job] = jobs.get(job, frozenset()) | {index}
    return jobs


def _num_running(live: Slices, newest: Mapping[int, Intent]) -> int:
    """Return how many array elements that work on `live` slices may run at once."""
    elements: dict[str, set[JobKey | None]] = {}
    throttles: dict[str, int | None] = {}
    for index in live:
        intent = newest[index]
        elements.setdefault(intent.token, set()).add(intent.element(index))
        throttles[intent.token] = intent.max_running
    return sum(min(len(jobs), throttles[token] or len(jobs)) for token, jobs in elements.items())


def adopt_lost_jobs(paths: RunPaths, run: RunRecords, scheduler: Scheduler) -> Mapping[str, str]:
    """Find jobs whose id was never recorded, by the token in their name.

    Returns:
        Ids of the jobs found, by stage.
    """
    lost = [i for i in run.intents if i.job_id is None and i.refused is None and not i.cancelled]
    if not lost:
        return {}
    job_ids = scheduler.find([intent.job_name for intent in lost])
    adopted: dict[str, str] = {}
    for intent in lost:
        job_id = job_ids.get(intent.job_name)
        if job_id is not None:
            append_entry(paths.ledger_dir, "submitted", intent.token, {"job_id": job_id})
            known = adopted.get(intent.stage)
            adopted[intent.stage] = f"{known} {job_id}" if known else job_id
    return adopted


def prepare_resume(
    paths: RunPaths,
    scheduler: Scheduler,
    fingerprints: Mapping[str, str],
    *,
    again: Mapping[str, Slices],
    kept: Mapping[str, Mapping[int, str]] | None = None,
    act: bool,
    afters: Mapping[str, Mapping[str, str]] | None = None,
) -> Preparation:
    """Decide which work is complete, which continues, and which jobs must be cancelled.

    Args:
        paths: of the run.
        scheduler: of its jobs.
        fingerprints: current ones by stage, in order; work done under another does not count. A
            stage may have been out of the spec for a while.
        again: slices that must run again in any case, by stage.
        kept: slices that count although their job had another fingerprint, see `sort_out`.
        act: False adopts and ends nothing, for a dry run.
        afters: current kinds of dependency by parent, by stage.

    Raises:
        SchedulerError: the scheduler could not be reached; without its answer a running job could
            be started twice.
    """
    adopted = adopt_lost_jobs(paths, read_run(paths.run_dir), scheduler) if act else {}
    if act:
        scheduler.settle()
    run = read_run(paths.run_dir)
    answer = Answer()  # a run without jobs needs no query to know that none of them lives
    if run.jobs:
        answer = scheduler.query(question_about([run], acts=True))
    if not answer.knows_the_living:
        reasons = "; ".join(answer.problem_texts)
        message = f"cannot resume without knowing which jobs still live: {reasons}"
        raise SchedulerError(message)
    if answer.doubts:
        doubts = doubts_text(run, answer.doubts, answer.problem_texts)
        message = f"cannot resume yet: {doubts}"
        raise SchedulerError(message)
    # The records are read after the query, see observe.status_of.
    run = read_run(paths.run_dir, also=tuple(fingerprints))
    status = reconcile(run, answer)
    damaged = {s.stage.name: damaged_slices(paths, s) for s in status.stages}
    living = {key for key, task in answer.tasks.items() if task.state in LIVING_STATES}
    void = {name: damaged[name] | again.get(name, frozenset()) for name in damaged}
    newest = {s.stage.name: latest_intents(run.intents, s.stage.name) for s in status.stages}
    return replace(
        sort_out(run, status, fingerprints, void, kept=kept, living=living, afters=afters),
        adopted=adopted,
        damaged=damaged,
        problems=answer.problem_texts,
        troubles={
            s.stage.name: trouble_of(paths, newest[s.stage.name], s, answer) for s in status.stages
        },
    )


def damaged_slices(paths: RunPaths, stage: StageStatus) -> Slices:
    """Return completed slices with an output file that is missing or has another size.

    A stage lists its files as `outputs` in its result: bytes by path below its output folder. Files
    that `clean` removed are not missing.
    """
    name = stage.stage.name
    cleanings = read_cleanings(paths)
    damaged = set()
    for part in stage.slices:
        if part.status != "completed" or part.ending is None:
            continue
        completion = read_completion(paths, name, part.ending)
        outputs = named_outputs(completion.result)
        if cleanings:
            removed = removed_since(cleanings, name, completion.ended_unix_s)
            outputs = without_removed(paths, name, outputs, removed)
        if wrong_outputs(paths.output_dir(name), outputs):
            damaged.add(part.slice_index)
    return frozenset(damaged)


def clear_the_way(paths: RunPaths, preparation: Preparation, scheduler: Scheduler) -> None:
    """Cancel the jobs in the way, after recording that they are superseded.

    Raises:
        SchedulerError: the scheduler could not be reached.
    """
    for token, slices in preparation.superseded.items():
        values = {"slices": ranges_text(sorted(slices))}
        append_entry(paths.ledger_dir, "cancelled", token, values)
    if preparation.cancel:
        scheduler.cancel(preparation.cancel)
