"""Search of a tuning: its budget, its trials and their order."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import slurm_jobs
from slurm_jobs.report.compare import Verdict
from slurm_jobs.report.steps.newest_steps import MIN_STEPS
from slurm_jobs.shared import units
from slurm_jobs.shared.configs.train import MEASURE_RUN
from slurm_jobs.shared.errors import DamagedFileError, StageStoppedError
from slurm_jobs.shared.files import make_private_dir, read_json, write_json_atomic
from slurm_jobs.shared.process import dies_with_parent, script_command, stop_requested
from slurm_jobs.shared.records import TaskContext, attempt_label, record_to_json
from slurm_jobs.tuning.knobs import (
    MAX_REPEATS,
    MIN_REPEATS,
    PREFETCH,
    WARMUP_STEPS,
    Ask,
    Cause,
    Change,
    Changes,
    Facts,
    NotTried,
    Outcome,
    Pairs,
    Proposal,
    Purpose,
    Trial,
    Tried,
    TuningProgress,
    afford,
    pairs_of,
    problem_with,
    propose,
    with_changes,
)
from slurm_jobs.tuning.summary import TOO_SHORT
from slurm_jobs.worker.rank import error_path

# Length of trials, and their number within the budget.


PROBE_STEPS = WARMUP_STEPS + MIN_STEPS
CLOSING_TRIALS = 2 * MIN_REPEATS
"""Trials reserved for the end: before and after."""
LEAST_TRIALS = 3 * CLOSING_TRIALS
"""After the probe: the control, one knob, before and after."""
_FAIR_TRIALS = 4 * CLOSING_TRIALS
"""After the probe: the control, two knobs, before and after. Own choice: with fewer knobs, longer
trials are more precise."""
_WANTED_TRIALS = 6 * CLOSING_TRIALS
"""For short steps and starts, which leave a choice: four knobs. Own choice."""
_LONGEST_S = 60.0
"""Maximum time of the measured steps, unless the start takes longer. Own choice."""
_MOST_STEPS = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Length:
    """Length of one trial."""

    num_steps: int
    """Warm-up included."""
    trial_s: float
    """Expected time, including the start, from the probe."""


def least_budget_s(probe: Trial) -> float:
    """Return the budget of the smallest tuning of this training."""
    return probe.wall_s + LEAST_TRIALS * (_start_s(probe) + PROBE_STEPS * probe.step_s)


def length_of(probe: Trial, budget_s: float) -> Length:
    """Return the length of trials.

    Measured steps take at least as long as the start if the budget then still covers two knobs,
    and up to a minute if it covers four. There are never fewer than `PROBE_STEPS`.

    Args:
        probe: first trial.
        budget_s: for all trials; at least `least_budget_s`.
    """
    start_s, left_s = _start_s(probe), budget_s - probe.wall_s
    unmeasured_s = start_s + WARMUP_STEPS * probe.step_s

    def measured_s(num_trials: int) -> float:
        return left_s / num_trials - unmeasured_s

    fair_s = min(start_s, measured_s(_FAIR_TRIALS))
    wanted_s = max(fair_s, min(_LONGEST_S, measured_s(_WANTED_TRIALS)))
    num_steps = WARMUP_STEPS + math.floor(wanted_s / max(probe.step_s, 1e-6))
    num_steps = min(max(num_steps, PROBE_STEPS), WARMUP_STEPS + _MOST_STEPS)
    return Length(num_steps=num_steps, trial_s=start_s + num_steps * probe.step_s)


def trial_seconds(trials: Sequence[Trial], length: Length) -> float:
    """Return the expected time of the next trial: the mean of finished ones, or the estimate."""
    walls = [t.wall_s for t in trials if t.purpose != "probe" and not t.failure]
    return sum(walls) / len(walls) if walls else length.trial_s


def _start_s(probe: Trial) -> float:
    """Return the time of a trial outside its steps."""
    return max(0.0, probe.wall_s - probe.num_steps * probe.step_s)


# Comparisons for which the budget was too small: what was left, and what would suffice.


MARGIN = 1.25
"""Factor on recommended budgets, because trials may become slower. Own choice; next to other work
they were once 1.5 times as slow, which this does not cover."""


def needed_s(pairs: Pairs, trial_s: float) -> float:
    """Return the time that a comparison still needs, including the closing trials."""
    return (pairs.num_missing + CLOSING_TRIALS) * trial_s


def open_trials(tried: Sequence[Pairs]) -> int:
    """Count the trials of undecided comparisons, which a larger budget runs first.

    All their trials count again, because with a larger budget trials may be longer.
    """
    return sum(
        2 * min(MAX_REPEATS, _repeats_to_decide(pairs)) for pairs in tried if not pairs.is_over
    )


def _repeats_to_decide(pairs: Pairs) -> int:
    """Return the repeats of each arm that are needed, including finished ones."""
    num_made = max(MIN_REPEATS, min(len(pairs.first), len(pairs.second)))
    return num_made + (pairs.verdict.more_runs or 0 if pairs.verdict is not None else 0)


def left_for_knobs_s(budget_s: float, trials: Sequence[Trial]) -> float:
    """Return the budget at the time when the last knob was skipped, before the closing trials.

    Trials of an earlier pass, before a resume with more budget, were spent by then.
    """
    others = [index for index, trial in enumerate(trials) if trial.purpose != "closing"]
    spent_s = sum(trial.wall_s for trial in trials[: max(others, default=-1) + 1])
    return max(0.0, budget_s - spent_s)


def why_no_room(left_s: float, needs_s: float) -> str:
    """Return `102 s of the budget were left, and one more comparison ... takes about 150 s`."""
    return (
        f"{units.seconds(left_s)} of the budget were left, and one more comparison with before "
        f"and after takes about {units.seconds(needs_s)}"
    )


def more_budget_min(
    probe: Trial, trials: Sequence[Trial], needs_s: float, trial_s: float, budget_s: float
) -> int:
    """Return whole minutes that suffice for one more comparison in addition to all finished trials.

    With a larger budget trials may be longer: those that are needed count with that length, and
    `MARGIN` is added.

    Args:
        probe: trial that measured the length of trials.
        trials: all that were made.
        needs_s: time of the comparison with the current trials.
        trial_s: time of each current trial.
        budget_s: current budget.
    """
    spent_s, num_trials = sum(trial.wall_s for trial in trials), needs_s / trial_s
    minutes = math.floor(budget_s / 60) + 1
    while True:
        length = length_of(probe, 60.0 * minutes)
        each_s = max(length.trial_s, trial_seconds(trials, length))
        if 60 * minutes - spent_s >= MARGIN * num_trials * each_s:
            return minutes
        minutes += 1


# Progress of a tuning: the next trial and the results, from the finished trials.
#
# First a baseline with and without its data path, then the knobs that findings name, strongest
# first, each compared with the best so far; finally before and after. The trials are the only
# state: a killed tuning continues after the last one.


KEPT_STEPS = 8
"""Steps of the control without data path: few enough for memory, more than the loader reads ahead.
"""
BUDGET = "the budget was used up"
_TIMES_AHEAD = 3
"""Measured steps per step that is read ahead, so that a trial mostly measures the loader's rate,
not its buffer. Own choice."""
_DATA, _CLOSING = "data", "closing"
_MOST_PROBES = 2
_COLD = 3.0
"""Factor by which a first start on a node, with cold caches, may be slower than the next."""
_STAGING_S = 1e6
_AT_MOST = 3.0
_LEEWAY_S = 120.0
"""A trial is ended after `_AT_MOST` times the time of the others plus `_LEEWAY_S`. Own choices."""


@dataclass(slots=True)
class _State:
    """Working state of `progress_of`."""

    facts: Facts
    trials: Sequence[Trial]
    length: Length
    probe: Trial
    kept: Changes = ()
    causes: tuple[Cause, ...] = ()
    tried: list[Tried] = field(default_factory=list)
    not_tried: dict[str, NotTried] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    @property
    def left_s(self) -> float:
        return self.facts.budget_s - sum(trial.wall_s for trial in self.trials)

    @property
    def trial_s(self) -> float:
        return trial_seconds(self.trials, self.length)

    def pairs(self, comparison: str) -> Pairs:
        return pairs_of(self.trials, comparison, self.facts.nodes, self.length.num_steps)

    def is_too_short_for(self, change: Change) -> bool:
        """Check whether trials are too short to empty the loader's buffer with the change."""
        num_measured = self.length.num_steps - WARMUP_STEPS
        return change.key == PREFETCH and num_measured < _TIMES_AHEAD * change.value

    def affords(self, pairs: Pairs) -> bool:
        """Check the budget, with the closing trials reserved; a first comparison may always finish.

        Trials may become slower than the first ones, and half of a comparison is useless.
        """
        is_half = pairs.is_begun and min(len(pairs.first), len(pairs.second)) < MIN_REPEATS
        kept_back = 0 if is_half and not self.kept else CLOSING_TRIALS
        return afford(pairs, self.left_s, self.trial_s, kept_back=kept_back)

    def num_ahead(self, changes: Changes) -> int:
        """Return how many steps the loader may read ahead with these changes."""
        return _num_ahead(with_changes(self.facts.train, changes))

    def ask(self, purpose: Purpose, comparison: str, pairs: Pairs, arms: tuple[Any, Any]) -> Ask:
        arm = pairs.next_arm
        is_kept = purpose == "data" and arm == "B"
        return Ask(
            purpose=purpose,
            comparison=comparison,
            arm=arm,
            changes=arms[arm == "B"],
            num_steps=self.length.num_steps,
            num_kept_steps=KEPT_STEPS if is_kept else 0,
            num_dropped_steps=0 if is_kept else max(map(self.num_ahead, arms)),
            limit_s=max(2 * self.trial_s, min(self.left_s, _AT_MOST * self.trial_s + _LEEWAY_S)),
        )


def progress_of(facts: Facts, trials: Sequence[Trial]) -> TuningProgress:
    """Return the progress after `trials`, all of the same training and code, in order."""
    probes = [t for t in trials if t.purpose == "probe" and t.nodes == facts.nodes]
    probe = min((t for t in probes if not t.failure), key=lambda t: t.wall_s, default=None)
    if probe is None:
        if len(probes) >= _MOST_PROBES:
            return TuningProgress(
                problem=f"the training as it is cannot be tried: {probes[-1].failure}"
            )
        return TuningProgress(ask=_probe(facts))
    least_s = least_budget_s(probe)
    if least_s > facts.budget_s:
        if len(probes) < _MOST_PROBES and least_s < _COLD * facts.budget_s:
            return TuningProgress(probe=probe, ask=_probe(facts))
        advised_min = math.ceil(MARGIN * math.ceil(least_s / 60))
        problem = _too_small(facts, probe, least_s, advised_min)
        return TuningProgress(probe=probe, problem=problem, advised_budget_min=advised_min)
    length = length_of(probe, facts.budget_s)
    state = _State(facts=facts, trials=trials, length=length, probe=probe)
    control = state.pairs(_DATA)
    if not control.is_over and _affords_control(state, control):
        return TuningProgress(probe=probe, ask=state.ask("data", _DATA, control, ((), ())))
    if control.is_broken or not control.first:
        why = control.failures[-1].failure if control.failures else BUDGET
        return TuningProgress(probe=probe, problem=f"the training as it is no longer runs: {why}")
    state.causes = causes = _causes(control.first[0], probe)
    ask = _next_knob_trial(state)
    comparison = f"{_CLOSING} {_name((), state.kept)}"  # more may be kept after a resume
    closing = state.pairs(comparison) if state.kept else None
    if ask is None and closing is not None and not closing.is_over and state.left_s > 0:
        ask = state.ask("closing", comparison, closing, ((), state.kept))
    return TuningProgress(
        ask=ask,
        probe=probe,
        control=control,
        causes=causes,
        tried=tuple(state.tried),
        not_tried=tuple(state.not_tried.values()),
        kept=state.kept,
        closing=closing,
        more_budget_min=_more_budget(state) if ask is None else None,
    )


def _num_ahead(train: Mapping[str, Any]) -> int:
    return int(train["num_prefetch_batches"])


def _probe(facts: Facts) -> Ask:
    return Ask(
        purpose="probe",
        comparison="probe",
        arm="A",
        changes=(),
        num_steps=PROBE_STEPS,
        num_dropped_steps=_num_ahead(facts.train),
        limit_s=_STAGING_S,  # it also stages the data, however long that takes
    )


def _affords_control(state: _State, control: Pairs) -> bool:
    """Check whether the budget covers another repeat of the control.

    After the first `MIN_REPEATS`, one knob and the closing trials must remain affordable.
    """
    is_whole = min(len(control.first), len(control.second)) >= MIN_REPEATS
    kept_back = 2 * CLOSING_TRIALS if is_whole else 0
    return afford(control, state.left_s, state.trial_s, kept_back=kept_back)


def _too_small(facts: Facts, probe: Trial, least_s: float, advised_min: int) -> str:
    return (
        f"a budget of {facts.budget_s / 60:g} min is too small: a trial of {PROBE_STEPS} steps "
        f"takes {probe.wall_s:.0f} s here, and the baseline with and without its data, one knob, "
        f"and before and after need {math.ceil(least_s / 60)} min; give --budget {advised_min} or "
        "more, because later trials may take longer"
    )


def _causes(trial: Trial, probe: Trial) -> tuple[Cause, ...]:
    """Return the causes of a trial; those that need a profile come from the probe."""
    known = {cause.rule for cause in trial.causes}
    profiled = [c for c in probe.causes if c.rule == "exposed-communication"]
    return (*trial.causes, *(c for c in profiled if c.rule not in known))


def _next_knob_trial(state: _State) -> Ask | None:
    """Process the knobs up to the trial that is missing; None if there is none."""
    while (proposal := _next(state)) is not None:
        change = proposal.change
        assert change is not None
        state.seen.add(change.text)
        after = (*state.kept, change)
        comparison = _name(state.kept, after)
        pairs = state.pairs(comparison)
        if not pairs.is_begun and (problem := problem_with(state.facts.train, after)):
            _note_not_tried(state, proposal, f"does not fit the rest of the config: {problem}")
            continue
        if not pairs.is_begun and state.is_too_short_for(change):
            _note_not_tried(state, proposal, TOO_SHORT)
            continue
        if not pairs.is_over and state.affords(pairs):
            return state.ask("knob", comparison, pairs, (state.kept, after))
        if not pairs.is_begun:
            needs_s = needed_s(pairs, state.trial_s)
            left_s = left_for_knobs_s(state.facts.budget_s, state.trials)
            _note_not_tried(state, proposal, why_no_room(left_s, needs_s), needs_s)
            continue
        verdict = pairs.verdict
        outcome, why = _outcome(pairs, verdict)
        tried = Tried(proposal=proposal, pairs=pairs, outcome=outcome, why=why)
        state.tried.append(tried)
        if tried.outcome == "kept":
            state.kept = after
            state.causes = _causes(pairs.second[0], state.probe)
    return None


def _next(state: _State) -> Proposal | None:
    """Return the first new proposal; note those that cannot be tried."""
    train = with_changes(state.facts.train, state.kept)
    for proposal in propose(state.causes, train, state.facts.hardware):
        if proposal.change is None:
            _note_not_tried(state, proposal, proposal.why_not)
        elif proposal.change.text not in state.seen:
            return proposal
    return None


def _note_not_tried(
    state: _State, proposal: Proposal, why: str, needs_s: float | None = None
) -> None:
    name = proposal.name if proposal.name != "-" else proposal.cause.rule
    left = NotTried(name=name, finding=proposal.cause.title, why=why, needs_s=needs_s)
    state.not_tried.setdefault(name, left)


def _more_budget(state: _State) -> int | None:
    needs = [entry.needs_s for entry in state.not_tried.values() if entry.needs_s is not None]
    if not needs:
        return None
    compared = [state.pairs(_DATA), *(entry.pairs for entry in state.tried)]
    first_s = open_trials(compared) * state.trial_s
    given_s = state.facts.budget_s
    return more_budget_min(state.probe, state.trials, first_s + min(needs), state.trial_s, given_s)


def _name(before: Changes, after: Changes) -> str:
    return json.dumps([[change.text for change in changes] for changes in (before, after)])


def _outcome(pairs: Pairs, verdict: Verdict | None) -> tuple[Outcome, str]:
    """Keep only what is surely faster."""
    if pairs.second_failure:
        return "failed", pairs.second_failure
    if pairs.is_broken:
        return "undecided", f"the training without it failed: {pairs.failures[-1].failure}"
    if verdict is None or min(len(pairs.first), len(pairs.second)) < MIN_REPEATS:
        return "undecided", BUDGET
    if verdict.word == "faster":
        return "kept", "faster"
    return "rejected", verdict.word


# Trials on all ranks of a job: rank 0 chooses, every rank runs its part as a new process.
#
# No state of a trial reaches the next one. The ranks communicate by small files in the attempt's
# folder. A rank whose part fails ends those of the others, which would otherwise wait for minutes;
# a rank that dies ends the job, as in every stage. A part ends with its rank.


TRIALS_DIR = "trials"
_POLL_S = 0.1
_OTHERS_PATIENCE_S = 5.0
"""Grace time of the other ranks' parts after one has failed: their messages may say more."""
_ERROR_CHARACTERS = 300


def trial_timing_dir(context: TaskContext, number: int) -> Path:
    """Return the trial's counterpart of an attempt folder, which holds its timing folder."""
    return context.timing_dir / TRIALS_DIR / f"{number:04d}"


def run_trial(
    context: TaskContext, number: int, config: Mapping[str, Any], *, port: int, limit_s: float
) -> str:
    """Run a trial on all ranks, and wait until all have ended; return why it failed, or nothing.

    Args:
        context: context of rank 0.
        number: number of the trial in this attempt.
        config: config of `pipeline.train.measure`.
        port: port on rank 0's node for the trial's ranks.
        limit_s: time after which it is ended.

    Raises:
        StageStoppedError: this rank was asked to stop.
    """
    folder = _folder(context, number)
    make_private_dir(folder)
    order = {"config": dict(config), "port": port, "limit_s": limit_s}
    write_json_atomic(_order_path(context, number), order)
    _run_part(context, number, order)
    while len(ends := _ends(folder)) < context.num_ranks:
        _pause()
    failed = [end for end in ends if end["failure"]]
    return str(min(failed, key=lambda end: end["ended_unix_s"])["failure"]) if failed else ""


def end_trials(context: TaskContext) -> None:
    """Signal the other ranks that there are no more trials."""
    make_private_dir(context.task_dir / TRIALS_DIR)
    write_json_atomic(_over_path(context), {})


def run_parts(context: TaskContext) -> None:
    """Run this rank's part of each trial until there are no more; for ranks other than 0.

    Raises:
        StageStoppedError: this rank was asked to stop.
    """
    number = 1
    while not _over_path(context).exists():
        order = _read(_order_path(context, number))
        if order is None:
            _pause()
            continue
        _run_part(context, number, order)
        number += 1


def _run_part(context: TaskContext, number: int, order: Mapping[str, Any]) -> None:
    """Run this rank's process of a trial, and record its result."""
    folder = _folder(context, number)
    part = dataclasses.replace(
        context,
        config=order["config"],
        main_port=order["port"],
        task_dir=_folder(context, number) / f"rank-{context.rank:05d}",
        timing_dir=trial_timing_dir(context, number) / attempt_label(0, 1),
        output_dir=context.output_dir / "work",
        slice_index=0,
        attempt=1,
    )
    for needed in (part.timing_dir, part.task_dir, part.output_dir):
        make_private_dir(needed)
    path = part.task_dir / "context.json"
    write_json_atomic(path, record_to_json(part))
    command = script_command(_start_script(), "call", path)
    variables = {
        **os.environ,
        "SLURM_JOBS_ENTRY_POINT": MEASURE_RUN,
        "MASTER_PORT": str(part.main_port),
        "SLURM_JOBS_OUTPUT_DIR": str(part.output_dir),
    }
    with (part.task_dir / "log").open("ab") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=variables,
            preexec_fn=dies_with_parent(signal.SIGKILL),  # noqa: PLW1509 - this process has one thread
        )
    try:
        failure = _wait(process, folder, order["limit_s"])
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    if not failure and process.returncode:
        failure = f"rank {context.rank}: {_failure_of(part, process.returncode)}"
    end = {"rank": context.rank, "failure": failure, "ended_unix_s": time.time()}
    write_json_atomic(folder / f"rank-{context.rank:05d}.end.json", end)


def _wait(process: subprocess.Popen[bytes], folder: Path, limit_s: float) -> str:
    """Wait until it ends, or must be ended; return the reason, empty if it ended normally."""
    began_s, failed_s = time.monotonic(), None
    while process.poll() is None:
        _pause()
        now_s = time.monotonic()
        if now_s - began_s > limit_s:
            return f"it took more than {limit_s:.0f} s"
        if failed_s is None and any(end["failure"] for end in _ends(folder)):
            failed_s = now_s
        if failed_s is not None and now_s - failed_s > _OTHERS_PATIENCE_S:
            return "ended because another rank failed"
    return ""


def _pause() -> None:
    """Wait a moment.

    Raises:
        StageStoppedError: this rank was asked to stop.
    """
    if stop_requested():
        message = "asked to stop: all finished trials are recorded"
        raise StageStoppedError(message)
    time.sleep(_POLL_S)


def _failure_of(part: TaskContext, code: int) -> str:
    """Return the error of the process, or its exit status."""
    error = _read(error_path(part.task_dir, part.rank))
    if error is not None:
        text = f"{error['type']}: {' '.join(str(error['message']).split())}"
        is_long = len(text) > _ERROR_CHARACTERS
        return text[: _ERROR_CHARACTERS - 3] + "..." if is_long else text
    if code < 0:
        killed = f"it was killed by signal {-code}"
        return (
            f"{killed}; the node may have run out of memory" if code == -signal.SIGKILL else killed
        )
    return f"it ended with exit code {code}; its log: {part.task_dir / 'log'}"


def _ends(folder: Path) -> list[Any]:
    ends = (_read(path) for path in folder.glob("rank-*.end.json"))
    return [end for end in ends if end is not None]


def _read(path: Path) -> Any:
    """Return None for a missing file."""
    with suppress(FileNotFoundError, DamagedFileError):
        return read_json(path)
    return None


def _folder(context: TaskContext, number: int) -> Path:
    return context.task_dir / TRIALS_DIR / f"{number:04d}"


def _order_path(context: TaskContext, number: int) -> Path:
    return context.task_dir / TRIALS_DIR / f"{number:04d}.order.json"


def _over_path(context: TaskContext) -> Path:
    return context.task_dir / TRIALS_DIR / "over.json"


def _start_script() -> Path:
    """Return the start script of the run's snapshot, whose `lib.zip` holds this package."""
    return Path(slurm_jobs.__file__).resolve().parent.parent.parent / "start.py"
