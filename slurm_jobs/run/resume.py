"""Preparation of a resume: adopt lost jobs, query the others, cancel those in the way.

`sort_out` decides about each job; `prepare_resume` collects the facts, `clear_the_way` acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from slurm_jobs.common.errors import SchedulerError
from slurm_jobs.common.outputs import named_outputs
from slurm_jobs.common.ranges import ranges_text
from slurm_jobs.dependencies import Slices
from slurm_jobs.reconcile import StageStatus, reconcile
from slurm_jobs.run.intents import latest_intents
from slurm_jobs.run.ledger import append_entry
from slurm_jobs.run.model import RunRecords
from slurm_jobs.run.orders import JobOrder, read_order
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.sort_out import Preparation, sort_out
from slurm_jobs.run.store import read_completion, read_run
from slurm_jobs.schedulers.protocol import Answer, Question, Scheduler
from slurm_jobs.schedulers.states import LIVING_STATES
from slurm_jobs.troubles import Had, trouble_of


def adopt_lost_jobs(paths: RunPaths, run: RunRecords, scheduler: Scheduler) -> Mapping[str, str]:
    """Find jobs whose id was never recorded, by the token in their name.

    Returns:
        Ids of the jobs found, by stage.
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
    afters: Mapping[str, Mapping[str, str]] | None = None,
) -> Preparation:
    """Decide which work is complete, which continues, and which jobs must be cancelled.

    Args:
        paths: of the run.
        scheduler: of its jobs.
        fingerprints: current ones by stage, in order; work done under another does not count. A
            stage may have been out of the spec for a while.
        again: slices that must run again in any case, by stage.
        act: False adopts and ends nothing, for a dry run.
        afters: current kinds of dependency by parent, by stage.

    Raises:
        SchedulerError: the scheduler could not be reached; without its answer a running job could
            be started twice.
    """
    adopted = adopt_lost_jobs(paths, read_run(paths.run_dir), scheduler) if act else {}
    answer = _asked(paths, scheduler, act=act)
    # The records are read after the query, see observe.status_of.
    run = read_run(paths.run_dir, also=tuple(fingerprints))
    status = reconcile(run, answer)
    damaged = {s.stage.name: damaged_slices(paths, s) for s in status.stages}
    living = {job_id for job_id, task in answer.tasks.items() if task.state in LIVING_STATES}
    void = {name: damaged[name] | again.get(name, frozenset()) for name in damaged}
    had = {s.stage.name: what_failed_had(paths, run, s) for s in status.stages}
    return replace(
        sort_out(run, status, fingerprints, void, living=living, afters=afters),
        adopted=adopted,
        damaged=damaged,
        problems=answer.problems,
        troubles={s.stage.name: trouble_of(s, answer, had[s.stage.name]) for s in status.stages},
    )


def _asked(paths: RunPaths, scheduler: Scheduler, *, act: bool) -> Answer:
    """Query the scheduler for the run's jobs; with `act`, let it clean up first.

    Raises:
        SchedulerError: it does not report which of them are alive.
    """
    if act:
        scheduler.settle()
    run = read_run(paths.run_dir)
    answer = Answer()
    if run.jobs:
        answer = scheduler.query(Question(jobs=run.jobs, since_unix_s=run.meta.created_unix_s))
    if not answer.knows_the_living:
        reasons = "; ".join(answer.problems)
        message = f"cannot resume without knowing which jobs still live: {reasons}"
        raise SchedulerError(message)
    return answer


def what_failed_had(paths: RunPaths, run: RunRecords, stage: StageStatus) -> dict[int, Had]:
    """Return the resources of each failed slice, as far as records and orders show them."""
    newest = latest_intents(run.intents, stage.stage.name)
    orders: dict[str, JobOrder] = {}
    found = {}
    for part in stage.slices:
        if part.status != "failed":
            continue
        token = newest[part.slice_index].token
        if token not in orders:
            orders[token] = read_order(paths.job_json(token))
        node = ""
        if part.ending is not None:
            node = read_completion(paths, stage.stage.name, part.ending).failed_node or ""
        asked = orders[token].resources
        found[part.slice_index] = Had(
            node=node,
            mem_gb=asked.mem_gb,
            timeout_min=asked.timeout_min / (orders[token].slices_per_task or 1),
        )
    return found


def damaged_slices(paths: RunPaths, stage: StageStatus) -> Slices:
    """Return completed slices with an output file that is missing or has another size.

    A stage lists its files as `outputs` in its result: bytes by path below its output folder.
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
    except (FileNotFoundError, NotADirectoryError):
        return None


def clear_the_way(paths: RunPaths, preparation: Preparation, scheduler: Scheduler) -> None:
    """Cancel the jobs in the way, after recording that they are superseded.

    Raises:
        SchedulerError: the scheduler could not be reached.
    """
    for token, slices in preparation.taken_away.items():
        values = {"slices": ranges_text(sorted(slices))}
        append_entry(paths.ledger_dir, "cancelled", token, values)
    if preparation.cancel:
        scheduler.cancel(preparation.cancel)
