"""Removal of what a run does not need any more, or of the whole run.

What is removed is recorded before, so that an interrupted clean is finished by the next one, and
`resume` knows why files are missing. Nothing is removed while a job may live, and symbolic links
are never followed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_jobs.base.errors import FileError, InputError, SchedulerError, SlurmJobsError
from slurm_jobs.commands.cleaning.clean_choice import chosen_pieces, link_on, links_in, measured
from slurm_jobs.commands.cleaning.run_readers import SpecTexts, reader_of
from slurm_jobs.run.contents import RunPart
from slurm_jobs.run.doubts import doubts_text
from slurm_jobs.run.home import refuse_elsewhere
from slurm_jobs.run.observe import answers, scheduler_of
from slurm_jobs.run.prepare_resume import adopt_lost_jobs
from slurm_jobs.run_folder.cleanings import (
    KINDS,
    Cleaning,
    Kind,
    Removed,
    read_cleanings,
    unfinished,
    write_cleanings,
)
from slurm_jobs.run_folder.ledger import intents, read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import last_plan_number, read_meta, read_run
from slurm_jobs.run_folder.run_values import RunRecords
from slurm_jobs.run_folder.submission_lock import submitting
from slurm_jobs.schedulers.job_states import LIVING_STATES
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.status.reconcile import reconcile
from slurm_jobs.status.run_status import RunStatus

_LAST = ("ledger", "run.json", "cleaned.json")
"""What the removal of a whole run keeps until the end: the turn to submit is in the ledger, and the
other two show that a clean must be finished."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanRequest:
    """Choice of what to remove from a run."""

    keep: frozenset[Kind] | None = None
    """Kinds to keep. None keeps all but parts that are consolidated, and checkpoints of complete
    trainings beyond those that the spec keeps."""
    is_whole: bool = False
    """Remove the whole run folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanPlan:
    """Removal from one run, and what stays."""

    run_dir: Path
    idle_s: float
    """Time since its last job was submitted, started or ended."""
    status: str
    removed: tuple[Removed, ...]
    kept: tuple[Kind, ...]
    is_whole: bool
    links: tuple[str, ...] = ()
    """Symbolic links that are not followed, each with what it leads to."""
    finishes: bool = False
    """True if an earlier clean was interrupted."""

    @property
    def num_bytes(self) -> int:
        """Return the space that is freed."""
        return sum(removed.num_bytes for removed in self.removed)


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanResult:
    """Plans of the runs that can be cleaned, and why the others cannot."""

    plans: tuple[CleanPlan, ...] = ()
    refused: Mapping[Path, SlurmJobsError] = field(default_factory=dict)


def plan_clean(run_dirs: Sequence[Path], request: CleanRequest) -> CleanResult:
    """Return what a clean of these runs would remove; removes nothing."""
    refused: dict[Path, SlurmJobsError] = {}
    states: dict[Path, _Candidate] = {}
    for run_dir in run_dirs:
        try:
            _refuse_link(run_dir)
            refuse_elsewhere(RunPaths(run_dir), read_meta(RunPaths(run_dir)))
            states[run_dir] = _Candidate(run=_records(run_dir))
        except (SlurmJobsError, OSError) as error:
            refused[run_dir] = _as_ours(run_dir, error)
    _observe(states)
    plans, specs = [], SpecTexts()
    for run_dir, state in states.items():
        try:
            _refuse_living(run_dir, state)
            plans.append(_plan(run_dir, state, request, specs))
        except (SlurmJobsError, OSError) as error:
            refused[run_dir] = _as_ours(run_dir, error)
    return CleanResult(plans=tuple(plans), refused=refused)


def clean(run_dirs: Sequence[Path], request: CleanRequest) -> CleanResult:
    """Remove it, one run after the other; the plans of the result are what was removed.

    No command can submit for these runs meanwhile, and all schedulers are asked again. A run that
    cannot be cleaned any more, or not completely, is refused; the others are cleaned.
    """
    plans: list[CleanPlan] = []
    refused: dict[Path, SlurmJobsError] = {}
    states: dict[Path, _Candidate] = {}
    specs = SpecTexts()
    with ExitStack() as turns:
        for run_dir in run_dirs:
            try:
                paths = RunPaths(run_dir)
                _refuse_link(run_dir)
                refuse_elsewhere(paths, read_meta(paths))
                turns.enter_context(submitting(paths))
                run = _records(run_dir)
                if run is not None:
                    adopt_lost_jobs(paths, run, scheduler_of(paths))
                    run = read_run(run_dir)
                states[run_dir] = _Candidate(run=run)
            except (SlurmJobsError, OSError) as error:
                refused[run_dir] = _as_ours(run_dir, error)
        _observe(states)
        for run_dir, state in states.items():
            try:
                _refuse_living(run_dir, state)
                plan = _plan(run_dir, state, request, specs)
                _remove(plan)
                plans.append(plan)
            except (SlurmJobsError, OSError) as error:
                refused[run_dir] = _as_ours(run_dir, error)
    for plan in plans:
        if plan.is_whole:
            try:
                _remove_rest(plan.run_dir)
            except OSError as error:
                refused[plan.run_dir] = _as_ours(plan.run_dir, error)
    done = tuple(plan for plan in plans if plan.run_dir not in refused)
    return CleanResult(plans=done, refused=refused)


@dataclass(kw_only=True)
class _Candidate:
    """Records of a run and the answer of its scheduler."""

    run: RunRecords | None
    """None if nothing was ever submitted, or only a removal of the whole run is left to finish."""
    answer: Answer = field(default_factory=Answer)
    status: RunStatus | None = None


def _records(run_dir: Path) -> RunRecords | None:
    paths = RunPaths(run_dir)
    pending = unfinished(read_cleanings(paths))
    if pending is not None and pending.is_whole:
        return None
    if last_plan_number(paths) == 0 and not intents(read_ledger(paths.ledger_dir)):
        return None  # its submit was cut off before the first job
    return read_run(run_dir)


def _observe(states: Mapping[Path, _Candidate]) -> None:
    """Query the schedulers, all runs on Slurm in one query; read the records after that."""
    runs = {run_dir: state.run for run_dir, state in states.items() if state.run is not None}
    local = {run_dir: run for run_dir, run in runs.items() if run.meta.scheduler == "local"}
    on_slurm = {run_dir: run for run_dir, run in runs.items() if run_dir not in local}
    answered: dict[Path, Answer] = {}
    for group in [on_slurm, *({run_dir: run} for run_dir, run in local.items())]:
        answered |= answers(group, fresh=True, acts=True, even_complete=True)
    for run_dir, answer in answered.items():
        state = states[run_dir]
        state.run, state.answer = read_run(run_dir), answer
        state.status = reconcile(state.run, answer)


def _refuse_link(run_dir: Path) -> None:
    if run_dir.is_symlink():
        message = (
            f"{run_dir} is a link to {run_dir.readlink()}, which is not followed: name the folder "
            f"itself, {run_dir.resolve()}"
        )
        raise InputError(message)


def _refuse_living(run_dir: Path, state: _Candidate) -> None:
    """Raise unless the scheduler has just reported that no job of the run lives.

    Raises:
        InputError: jobs live.
        SchedulerError: that is not known.
    """
    run, answer = state.run, state.answer
    if run is None:
        return
    if not answer.knows_the_living:
        raise _unknown(run_dir, "; ".join(answer.problem_texts))
    if answer.doubts:
        raise _unknown(run_dir, doubts_text(run, answer.doubts, answer.problem_texts))
    living = {key.job_id: t.state for key, t in answer.tasks.items() if t.state in LIVING_STATES}
    if living:
        shown = [f"{job_id} ({word})" for job_id, word in sorted(living.items())[:5]]
        more = f" and {len(living) - 5} more" if len(living) > 5 else ""
        message = (
            f"{run_dir.name} has jobs that have not ended: {', '.join(shown)}{more}. Wait for "
            "them, or `slurm-jobs cancel` it first"
        )
        raise InputError(message)


def _unknown(run_dir: Path, why: str) -> SchedulerError:
    return SchedulerError(f"it is not known whether jobs of {run_dir.name} still live: {why}")


def _as_ours(run_dir: Path, error: SlurmJobsError | OSError) -> SlurmJobsError:
    if isinstance(error, SlurmJobsError):
        return error
    where = error.filename or run_dir
    message = f"{where}: {error.strerror or error}; fix that, and the same command continues"
    return FileError(message)


def _plan(run_dir: Path, state: _Candidate, request: CleanRequest, specs: SpecTexts) -> CleanPlan:
    """Return what goes.

    Raises:
        InputError: a run that is not complete reads what goes.
    """
    paths = RunPaths(run_dir)
    pending = unfinished(read_cleanings(paths))
    is_whole = request.is_whole or (pending is not None and pending.is_whole)
    links: dict[str, None] = {}
    removed: dict[str, Removed] = {}
    kept: dict[Kind, None] = {}
    if is_whole:
        removed["."] = measured(run_dir, RunPart(kind="data", path=Path()))
        links = dict.fromkeys(links_in(run_dir))
    else:
        chosen = chosen_pieces(paths, state.status, request.keep)
        if pending is not None:
            for each in pending.removed:
                piece = RunPart(kind=each.kind, path=Path(each.path), stage=each.stage)
                if os.path.lexists(run_dir / each.path):
                    chosen.append((piece, True))
        for piece, goes in chosen:
            link = link_on(run_dir, piece.path)
            if goes and link is not None:
                links[link] = None
            elif goes:
                removed[str(piece.path)] = measured(run_dir, piece)
            else:
                kept[piece.kind] = None
    reader = reader_of(specs, run_dir, [run_dir / path for path in removed])
    if reader is not None:
        message = (
            f"{run_dir.name} is read by a run that is not complete, {reader.run_dir}, whose spec "
            f"names {reader.text}: resume that run, remove it with `slurm-jobs clean --all`, or "
            "keep the data and the model with `--keep`"
        )
        raise InputError(message)
    return CleanPlan(
        run_dir=run_dir,
        idle_s=max(0.0, time.time() - last_activity_unix_s(paths)),
        status=state.status.status if state.status is not None else "not submitted",
        removed=tuple(removed.values()),
        kept=() if is_whole else tuple(kind for kind in KINDS if kind in kept),
        is_whole=is_whole,
        links=tuple(links),
        finishes=pending is not None,
    )


def last_activity_unix_s(paths: RunPaths) -> float:
    """Return when a job of the run was last submitted, started or ended.

    Raises:
        OSError: the folder is no run, or cannot be read.
    """
    folders = [paths.run_dir / "completions", paths.run_dir / "attempts"]
    places = [paths.run_json, paths.plans_dir]
    places += [stage for folder in folders if folder.is_dir() for stage in folder.iterdir()]
    return max(place.stat().st_mtime for place in places if place.exists())


def _remove(plan: CleanPlan) -> None:
    """Record what goes, remove it, and record that it is gone."""
    if not plan.removed and not plan.finishes:
        return
    paths = RunPaths(plan.run_dir)
    before = read_cleanings(paths)
    ended = tuple(each for each in before if each.ended_unix_s is not None)
    removed = {each.path: each for each in plan.removed if not plan.is_whole}
    if (pending := unfinished(before)) is not None:  # some of it is gone already
        removed |= {each.path: each for each in pending.removed}
    this = Cleaning(
        begun_unix_s=time.time(),
        ended_unix_s=None,
        is_whole=plan.is_whole,
        removed=tuple(removed.values()),
    )
    write_cleanings(paths, (*ended, this))
    if plan.is_whole:
        for path in list(plan.run_dir.iterdir()):
            if path.name not in _LAST:
                _remove_path(path)
        return
    for each in plan.removed:
        _remove_path(plan.run_dir / each.path)
    write_cleanings(paths, (*ended, replace(this, ended_unix_s=time.time())))


def _remove_rest(run_dir: Path) -> None:
    """Remove the last files of a run, after the turn to submit has ended, and its folder."""
    doomed = run_dir / ".ledger.tmp"  # a ledger with some entries missing could not be read
    (run_dir / "ledger").rename(doomed)
    shutil.rmtree(doomed)
    (run_dir / "cleaned.json").unlink()
    shutil.rmtree(run_dir)


def _remove_path(path: Path) -> None:
    """Remove a folder or file; of a link the link itself."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
