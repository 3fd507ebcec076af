"""What a resume does before it plans: adopts lost jobs, sorts active from missing, clears the way.

Pure decisions in `sort_out`; `prepare_resume` asks, `clear_the_way` acts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_jobs.common.errors import SchedulerError
from slurm_jobs.common.outputs import named_outputs
from slurm_jobs.plan import Done, Slices
from slurm_jobs.reconcile import (
    NOT_NEEDED,
    RunStatus,
    SliceStatus,
    StageStatus,
    completed_slices,
    reconcile,
)
from slurm_jobs.run.intents import Intent, latest_intents
from slurm_jobs.run.ledger import append_entry
from slurm_jobs.run.model import RunRecords
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_completion, read_run
from slurm_jobs.run.submission import Connections
from slurm_jobs.schedulers.protocol import Answer, Scheduler
from slurm_jobs.schedulers.states import LIVING_STATES
from slurm_jobs.troubles import Trouble, trouble_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """What a resume starts from."""

    done: Done
    connections: Connections
    cancel: tuple[str, ...]
    """Jobs and array elements that must make way."""
    adopted: Mapping[str, str] = field(default_factory=dict)
    """Job ids that were found again, by stage."""
    damaged: Mapping[str, Slices] = field(default_factory=dict)
    """Slices whose output is no longer what their completion record says, by stage."""
    problems: tuple[str, ...] = ()
    """Sources that could not be asked; what they alone know is taken for unknown."""
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    """What failed slices met, by stage."""


def adopt_lost_jobs(paths: RunPaths, run: RunRecords, scheduler: Scheduler) -> Mapping[str, str]:
    """Find jobs whose id was never written down, by the token in their name.

    Returns:
        Job ids by stage, of those found.
    """
    lost = [i for i in run.intents if i.job_id is None and i.refused is None and not i.cancelled]
    if not lost:
        return {}
    found = scheduler.find([intent.job_name for intent in lost])
    adopted: dict[str, str] = {}
    for intent in lost:
        job_id = found.get(intent.job_name)
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
    act: bool,
) -> Preparation:
    """Look at the run and say what is done, what goes on, and what must make way.

    Args:
        paths: of the run.
        scheduler: that has its jobs.
        fingerprints: by stage, as they are now; work done under another is not this work.
        again: slices that shall run again whatever is known of them, by stage.
        act: False adopts nothing, for a dry run.

    Raises:
        SchedulerError: the scheduler could not be asked; without its word a
            job that still runs could be started twice.
    """
    adopted = adopt_lost_jobs(paths, read_run(paths.run_dir), scheduler) if act else {}
    answer = _asked(paths, scheduler)
    run = read_run(paths.run_dir)  # after the question, see observe.status_of
    status = reconcile(run, answer)
    damaged = {s.stage.name: damaged_slices(paths, s) for s in status.stages}
    living = {job_id for job_id, task in answer.tasks.items() if task.state in LIVING_STATES}
    void = {name: damaged[name] | again.get(name, frozenset()) for name in damaged}
    preparation = sort_out(run, status, fingerprints, void, living)
    return replace(
        preparation,
        adopted=adopted,
        damaged=damaged,
        problems=answer.problems,
        troubles={
            s.stage.name: trouble_of(s, answer, failed_nodes(paths, s)) for s in status.stages
        },
    )


def _asked(paths: RunPaths, scheduler: Scheduler) -> Answer:
    """What the scheduler says of the run's jobs.

    Raises:
        SchedulerError: it does not say which of them live.
    """
    run = read_run(paths.run_dir)
    answer = Answer()
    if run.job_ids:
        answer = scheduler.query(run.job_ids, since_unix_s=run.meta.created_unix_s)
    if not answer.knows_the_living:
        reasons = "; ".join(answer.problems)
        message = f"cannot resume without knowing which jobs still live: {reasons}"
        raise SchedulerError(message)
    return answer


def failed_nodes(paths: RunPaths, stage: StageStatus) -> dict[int, str]:
    """The node that each failed slice failed on, as far as its record says."""
    nodes = {}
    for part in stage.slices:
        if part.status == "failed" and part.ending is not None:
            record = read_completion(paths, stage.stage.name, part.ending)
            if record.failed_node:
                nodes[part.slice_index] = record.failed_node
    return nodes


def damaged_slices(paths: RunPaths, stage: StageStatus) -> Slices:
    """Completed slices that lack a file which their record names, or have it in another size.

    A stage names its files as `outputs` in its result: bytes by path below its output folder.
    """
    folder = paths.output_dir(stage.stage.name)
    found = set()
    for part in stage.slices:
        if part.status != "completed" or part.ending is None:
            continue
        outputs = named_outputs(read_completion(paths, stage.stage.name, part.ending).result)
        if any(_size(folder / name) != num_bytes for name, num_bytes in outputs.items()):
            found.add(part.slice_index)
    return frozenset(found)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def clear_the_way(preparation: Preparation, scheduler: Scheduler) -> None:
    """Cancel what is in the way.

    Raises:
        SchedulerError: the scheduler could not be asked.
    """
    if preparation.cancel:
        scheduler.cancel(preparation.cancel)


@dataclass(frozen=True, kw_only=True, slots=True)
class _SortedStage:
    """What becomes of one stage's slices and jobs."""

    completed: Slices
    live: Slices
    active: tuple[str, ...]
    ending: tuple[str, ...]
    """May be at work, or start before they are cancelled."""
    cancel: tuple[str, ...]


def sort_out(
    run: RunRecords,
    status: RunStatus,
    fingerprints: Mapping[str, str],
    void: Mapping[str, Slices] | None = None,
    living: Collection[str] = (),
) -> Preparation:
    """Which slices are complete, which go on as they are, which jobs must make way. PURE.

    `void` slices run again, complete or running: they have lost output, or the user says
    so. `living` are the ids of all jobs and elements that are queued or running.
    """
    found: dict[str, _SortedStage] = {}
    runs_again: set[str] = set()
    for stage in status.stages:
        name = stage.stage.name
        parent_again = any(parent in runs_again for parent in stage.stage.after)
        newest = latest_intents(run.intents, name)
        current = {i: n for i, n in newest.items() if n.fingerprint == fingerprints.get(name)}
        unwanted = (void or {}).get(name, frozenset())
        current = {i: n for i, n in current.items() if i not in unwanted}
        completed = completed_slices(run.records[name], current)
        older = _older_living(run.intents, name, newest, living)
        found[name] = _sort_stage(
            stage,
            newest=newest,
            current=current,
            completed=completed,
            older=older,
            parent_again=parent_again,
        )
        missing = len(found[name].live | completed) < stage.stage.num_slices
        if (parent_again or missing) and not stage.reason.startswith(NOT_NEEDED):
            runs_again.add(name)
    return _gathered(found)


def _gathered(found: Mapping[str, _SortedStage]) -> Preparation:
    return Preparation(
        done=Done(
            completed={name: part.completed for name, part in found.items()},
            active={name: part.live for name, part in found.items()},
        ),
        connections=Connections(
            active={name: part.active for name, part in found.items()},
            ending={name: part.ending for name, part in found.items()},
        ),
        cancel=tuple(job_id for part in found.values() for job_id in part.cancel),
    )


def _sort_stage(
    stage: StageStatus,
    *,
    newest: Mapping[int, Intent],
    current: Mapping[int, Intent],
    completed: Slices,
    older: tuple[str, ...],
    parent_again: bool,
) -> _SortedStage:
    live = frozenset(
        s.slice_index
        for s in stage.slices
        if s.slice_index in current and _goes_on(s, newest, parent_again=parent_again)
    )
    doomed = _with_status(stage.slices, {"running", "waiting", "stranded"}) - live
    # An element that works through several slices ends with all of them; where one has failed
    # it will end as failed, and what comes after it would never start.
    lost = _with_status(stage.slices, {"failed", "cancelled", "unknown"}) & frozenset(current)
    elements = {newest[index].element_id(index) for index in doomed | lost}
    live = frozenset(i for i in live if newest[i].element_id(i) not in elements)
    doomed = _with_status(stage.slices, {"running", "waiting", "stranded"}) - live
    return _SortedStage(
        completed=completed,
        live=live,
        active=_ids(live, newest),
        ending=(*_ids(doomed & _with_status(stage.slices, {"running", "waiting"}), newest), *older),
        cancel=(*_ids(doomed, newest), *older),
    )


def _older_living(
    intents: Iterable[Intent], stage: str, newest: Mapping[int, Intent], living: Collection[str]
) -> tuple[str, ...]:
    """Elements of a stage's earlier intents that have not ended, though newer have their slices."""
    elements = (
        intent.element_id(index)
        for intent in intents
        if intent.stage == stage
        for index in intent.slices
        if all(newest[i] is not intent for i in intent.slices_beside(index))
    )
    return tuple(dict.fromkeys(e for e in elements if e is not None and e in living))


def _goes_on(part: SliceStatus, newest: Mapping[int, Intent], *, parent_again: bool) -> bool:
    """Running or queued, on nothing that is made again, and not cancelled."""
    if part.job_id is None or newest[part.slice_index].cancelled:
        return False
    return part.status in {"running", "waiting"} and not parent_again


def _with_status(slices: tuple[SliceStatus, ...], words: set[str]) -> frozenset[int]:
    return frozenset(s.slice_index for s in slices if s.job_id is not None and s.status in words)


def _ids(chosen: Slices, newest: Mapping[int, Intent]) -> tuple[str, ...]:
    """Ids of the chosen slices: the job's own where all its slices are chosen, else elements."""
    ids: dict[str, None] = {}
    for index in sorted(chosen):
        intent = newest[index]
        whole = all(i in chosen and newest.get(i) is intent for i in intent.slices)
        job_id = intent.job_id if whole else intent.element_id(index)
        assert job_id is not None
        ids[job_id] = None
    return tuple(ids)
