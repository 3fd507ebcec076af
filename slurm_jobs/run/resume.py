"""What a resume does before it plans: adopts lost jobs, sorts active from missing, clears the way.

Pure decisions in `sort_out`; `prepare_resume` acts on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_jobs.common.errors import SchedulerError
from slurm_jobs.plan import Done, Slices
from slurm_jobs.reconcile import RunStatus, StageStatus, completed_slices, reconcile
from slurm_jobs.run.intents import Intent, latest_intents
from slurm_jobs.run.ledger import append_entry
from slurm_jobs.run.model import RunRecords
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_run
from slurm_jobs.run.submission import ActiveIds
from slurm_jobs.schedulers.protocol import Scheduler


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """What a resume starts from."""

    done: Done
    active: ActiveIds
    cancel: tuple[str, ...]
    """Jobs and array elements that must make way: stranded, or waiting for what runs again."""
    adopted: Mapping[str, str]
    """Job ids that were found again, by stage."""


def adopt_lost_jobs(paths: RunPaths, run: RunRecords, scheduler: Scheduler) -> Mapping[str, str]:
    """Find jobs whose id was never written down, by the token in their name.

    Returns:
        Job id by stage, of those found.
    """
    lost = [i for i in run.intents if i.job_id is None and i.refused is None and not i.cancelled]
    if not lost:
        return {}
    found = scheduler.find([intent.job_name for intent in lost])
    adopted = {}
    for intent in lost:
        job_id = found.get(intent.job_name)
        if job_id is not None:
            append_entry(paths.ledger_dir, "submitted", intent.token, {"job_id": job_id})
            adopted[intent.stage] = job_id
    return adopted


def prepare_resume(paths: RunPaths, scheduler: Scheduler) -> Preparation:
    """Look at the run, cancel what is in the way, and say what is done and what goes on.

    Raises:
        SchedulerError: the scheduler could not be asked; without its word a
            job that still runs could be started twice.
    """
    run = read_run(paths.run_dir)
    adopted = adopt_lost_jobs(paths, run, scheduler)
    run = read_run(paths.run_dir)
    ids = run.job_ids
    answer = scheduler.query(ids, since_unix_s=run.meta.created_unix_s) if ids else None
    if answer is not None and answer.problems:
        message = "cannot resume without knowing which jobs still live: " + "; ".join(
            answer.problems
        )
        raise SchedulerError(message)
    from slurm_jobs.schedulers.protocol import Answer

    run = read_run(paths.run_dir)  # after the question, see observe.status_of
    status = reconcile(run, answer or Answer())
    preparation = sort_out(run, status)
    if preparation.cancel:
        scheduler.cancel(preparation.cancel)
    return Preparation(
        done=preparation.done,
        active=preparation.active,
        cancel=preparation.cancel,
        adopted=adopted,
    )


def sort_out(run: RunRecords, status: RunStatus) -> Preparation:
    """Which slices are complete, which go on as they are, which jobs must make way. PURE."""
    completed: dict[str, Slices] = {}
    active: dict[str, Slices] = {}
    active_ids: dict[str, tuple[str, ...]] = {}
    cancel: list[str] = []
    runs_again: set[str] = set()
    for stage in status.stages:
        name = stage.stage.name
        newest = latest_intents(run.intents, name)
        parent_again = any(parent in runs_again for parent in stage.stage.after)
        completed[name] = completed_slices(run.records[name], newest)
        live = _live(stage, keep_waiting=not parent_again)
        active[name] = frozenset(live)
        active_ids[name] = tuple(_shortest({i: newest[i] for i in sorted(live)}, newest))
        cancel += _in_the_way(stage, newest, live)
        missing = stage.stage.num_slices - len(live | completed[name])
        if missing or parent_again:
            runs_again.add(name)
    return Preparation(
        done=Done(completed=completed, active=active),
        active=active_ids,
        cancel=tuple(cancel),
        adopted={},
    )


def _live(stage: StageStatus, *, keep_waiting: bool) -> frozenset[int]:
    return frozenset(
        s.slice_index
        for s in stage.slices
        if s.status == "running"
        or (s.status == "waiting" and s.job_id is not None and keep_waiting)
    )


def _in_the_way(
    stage: StageStatus, newest: Mapping[int, Intent], live: frozenset[int]
) -> list[str]:
    """Queued jobs that are stranded or wait for a job that runs again; whole arrays by one id."""
    doomed = {
        s.slice_index
        for s in stage.slices
        if s.slice_index not in live
        and s.job_id is not None
        and s.status in {"waiting", "stranded"}
    }
    return _shortest({i: newest[i] for i in doomed}, newest)


def _shortest(chosen: Mapping[int, Intent], newest: Mapping[int, Intent]) -> list[str]:
    """Ids of the chosen slices: the job's own where all its slices are chosen, else elements."""
    ids: dict[str, None] = {}
    for index, intent in chosen.items():
        whole = all(
            slice_index in chosen and newest.get(slice_index) is intent
            for slice_index in intent.slices
        )
        job_id = intent.job_id if whole else intent.element_id(index)
        assert job_id is not None
        ids[job_id] = None
    return list(ids)
