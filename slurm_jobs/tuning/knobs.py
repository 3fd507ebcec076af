"""Settings that a tuning may change, and the values that it records."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.report.compare import MIN_RUNS, Verdict, judge
from slurm_jobs.report.inputs.run_inputs import StageInputs
from slurm_jobs.report.inputs.timing_records import read_profiles, read_readings, read_timings
from slurm_jobs.report.rules.base import share_of
from slurm_jobs.report.rules.rule_table import find
from slurm_jobs.report.run_measures import speed_of
from slurm_jobs.report.steps.attempt_steps import split_attempts
from slurm_jobs.report.training_numbers import TRAIN_RUN, training_numbers
from slurm_jobs.report.values.finding_model import Finding
from slurm_jobs.shared.config import build_config
from slurm_jobs.shared.configs.stages import TuneConfig
from slurm_jobs.shared.configs.train import MAY_CHANGE, TrainConfig, as_training
from slurm_jobs.shared.errors import DamagedFileError, StageError
from slurm_jobs.shared.files import create_once, dump_json, make_private_dir, plain_json, read_json
from slurm_jobs.shared.records import known_fields

# Requests, measurements and results of a tuning as plain values.


START_UP_MIN = 15
"""Minutes of the time limit outside the budget: the start, and staging the data."""

Purpose = Literal["probe", "data", "knob", "closing"]
"""`probe`: how long a step takes; `data`: real samples against kept ones; `knob`: one change;
`closing`: before and after."""
Arm = Literal["A", "B"]
Outcome = Literal["kept", "rejected", "failed", "undecided"]


def budget_settings(stage: str, budget_min: float) -> tuple[str, str]:
    """Return the overrides with which a resume gives the tuning and its job so many minutes."""
    return (
        f"stages.{stage}.config.budget_min={budget_min:g}",
        f"stages.{stage}.resources.timeout_min={budget_min + START_UP_MIN:g}",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Change of one value of the training's config."""

    key: str
    """Dotted, within the config: `sharding.reshard_after_forward`."""
    value: Any

    @property
    def text(self) -> str:
        """Text such as `num_loader_threads: 4`."""
        return f"{self.key}: {json.dumps(self.value)}"


Changes = tuple[Change, ...]
"""Relative to the original config; the last one of a key counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Finding of the report, reduced to what a tuning needs."""

    rule: str
    """Id of the rule without the stage: `data-wait`."""
    title: str
    ceiling: str
    """Upper bound of the gain, in words."""
    times: float | None
    """Upper bound as a factor of the speed; None if unknown."""
    kind: str = ""
    """Cause, if the rule distinguishes several: `threads`, `storage`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """Trial to run."""

    purpose: Purpose
    comparison: str
    """Key of the comparison; equal for both arms."""
    arm: Arm
    changes: Changes
    num_steps: int
    """Warm-up included."""
    num_kept_steps: int = 0
    """Above 0 the data path is removed; see `MeasureConfig`."""
    num_dropped_steps: int = 0
    """Read at the end of the warm-up and dropped; equal for both arms, so that they train on the
    same samples."""
    limit_s: float
    """Time after which it is ended and has failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """Finished trial."""

    number: int
    """From 1, over all attempts."""
    basis: str
    """Hash of training and code; only equal ones are comparable."""
    purpose: Purpose
    comparison: str
    arm: Arm
    changes: Changes
    num_steps: int
    nodes: tuple[str, ...]
    wall_s: float
    """Time since the previous trial ended, including the start of its processes, without staging.
    """
    failure: str = ""
    """Reason for missing results; then all fields below are 0 or empty."""
    tokens_per_s: float = 0.0
    """Tokens without padding, of all ranks; 0 if they are not counted."""
    samples_per_s: float = 0.0
    step_s: float = 0.0
    """Mean over the measured steps."""
    data_wait_share: float = 0.0
    """Share of the mean step, over all ranks."""
    memory_peak_bytes: float = 0.0
    """Maximum over the ranks; 0 if it is not recorded."""
    causes: tuple[Cause, ...] = ()
    """Findings of the report's rules, strongest first."""
    timing_dir: str = ""
    """Folder of its step records, relative to the run's folder."""

    @property
    def speed(self) -> float:
        """Tokens per second, or samples per second if tokens are not counted."""
        return self.tokens_per_s or self.samples_per_s


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """Convert a trial to JSON values."""
    return asdict(trial)


def trial_from_json(values: Mapping[str, Any]) -> Trial:
    """Convert from JSON values of `trial_to_json`."""
    known = known_fields(Trial, values)
    known["changes"] = tuple(Change(**known_fields(Change, each)) for each in known["changes"])
    known["causes"] = tuple(Cause(**known_fields(Cause, each)) for each in known["causes"])
    return Trial(**{**known, "nodes": tuple(known["nodes"])})


# Config of one trial, from the config of a training.


WARMUP_STEPS = 5
"""Excluded from every trial, as in the report and `compare`."""
READ_EVERY_S = 0.25
"""Trials are short, and the report's rules on node load need ten readings."""
_PROFILED_STEPS = 4


def base_config(tune: TuneConfig) -> dict[str, Any]:
    """Return the training, or its phase to tune: all its keys, as JSON values."""
    train = build_config(TrainConfig, tune.train)
    config = train if tune.phase is None else as_training(train, tune.phase)
    values: dict[str, Any] = plain_json(asdict(config))
    return values


def with_changes(train: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """Return a copy with `changes`; the last one of a key counts."""
    changed = copy.deepcopy(dict(train))
    for change in changes:
        *parents, last = change.key.split(".")
        values = changed
        for name in parents:
            values = values[name]
        values[last] = copy.deepcopy(change.value)
    return changed


def problem_with(train: Mapping[str, Any], changes: Sequence[Change]) -> str:
    """Return why the training cannot be changed in this way; empty if it can."""
    try:
        build_config(TrainConfig, with_changes(train, changes))
    except ValueError as error:
        return " ".join(str(error).split())
    return ""


def measure_config(train: Mapping[str, Any], ask: Ask, *, num_ranks: int) -> dict[str, Any]:
    """Return the config of `pipeline.train.measure`: steps without checkpoints.

    Staging precedes the first step, so that steps read the staged copy. The probe profiles some
    steps if ranks communicate.
    """
    changed = with_changes(train, ask.changes)
    staging, sampler = changed["staging"], changed["sampler"]
    every_s = min(sampler["every_s"] or READ_EVERY_S, READ_EVERY_S)
    is_profiled = ask.purpose == "probe" and num_ranks > 1
    steps = [ask.num_steps - _PROFILED_STEPS, ask.num_steps - 1] if is_profiled else None
    return {
        "num_kept_steps": ask.num_kept_steps,
        "num_dropped_steps": ask.num_dropped_steps,
        "drop_before": WARMUP_STEPS - 1,
        "train": {
            **changed,
            "num_steps": ask.num_steps,
            "num_epochs": None,
            "checkpoint": {"every_min": None},
            "evaluate": {},
            "trackers": {},
            "profile": {"steps": steps},
            "sampler": {**sampler, "every_s": every_s},
            "staging": {**staging, "mode": "before"} if staging["mode"] == "beside" else staging,
            "log_every_steps": ask.num_steps,
        },
    }


# Trials of a tuning, one file each, written once, so that a kill loses no measurement.


JOURNAL_DIR = "trials"
"""Name in the stage's output folder."""


def read_trials(output_dir: Path) -> list[Trial]:
    """Return all finished trials by number, regardless of training and code.

    A file that cannot be read is skipped: its trial runs again.
    """
    trials = []
    for path in sorted((output_dir / JOURNAL_DIR).glob("[0-9]*.json")):
        try:
            trials.append(trial_from_json(read_json(path)))
        except (DamagedFileError, TypeError, KeyError, ValueError, AttributeError) as error:
            print(f"{path} is left out: {error}", flush=True)
    return trials


def next_number(output_dir: Path) -> int:
    """Return the next number, from 1; unreadable files count."""
    names = [p.stem for p in (output_dir / JOURNAL_DIR).glob("[0-9]*.json")]
    numbers = [int(name) for name in names if name.isdecimal()]
    return max(numbers, default=0) + 1


def add_trial(output_dir: Path, trial: Trial) -> None:
    """Write a trial durably."""
    folder = output_dir / JOURNAL_DIR
    make_private_dir(folder)
    is_new = create_once(
        folder / f"{trial.number:04d}.json", dump_json(trial_to_json(trial)).encode()
    )
    assert is_new, trial.number


# Knobs for each finding of the report, and their new values.
#
# A knob changes how a training runs, never what it learns: its key is one of `MAY_CHANGE`. Knobs
# that would change that, or need another allocation, are named and not tried.


LEARNED = "would change what is learned"
HARDWARE = "not on this hardware"
NO_KNOB = "no knob known"
PREFETCH = "num_prefetch_batches"

_MOST_THREADS_A_CORE = 4
"""Threads that wait for storage need no core; beyond this they queue up. Own choice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """Hardware of the allocation."""

    device: str
    """`cuda` or `cpu`."""
    num_ranks: int
    cpus_per_task: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """Change to try, or the reason why it is not tried."""

    cause: Cause
    change: Change | None
    name: str
    """Name of the knob: `num_loader_threads: 4`, `cpus_per_task`."""
    why_not: str = ""
    """Empty where there is a change."""


_Values = Mapping[str, Any]
_Knob = Callable[[_Values, Hardware], Change | tuple[str, str] | None]
"""Returns a change, or name and reason of what is not tried, or None if it does not apply."""


def propose(causes: Sequence[Cause], train: _Values, hardware: Hardware) -> list[Proposal]:
    """Return the proposals of the findings, strongest first; equal ones in the order of the table.

    Args:
        causes: in any order.
        train: the config with what was kept so far; all its keys.
        hardware: hardware of the allocation.
    """
    proposals: list[Proposal] = []
    for cause in by_strength(causes):
        knobs = KNOBS.get(f"{cause.rule}:{cause.kind}") or KNOBS.get(cause.rule, (_unknown,))
        answers = [knob(train, hardware) for knob in knobs]
        for answer in answers:
            if answer is None:
                continue
            if isinstance(answer, Change):
                assert answer.key.partition(".")[0] in MAY_CHANGE, answer.key
                proposals.append(Proposal(cause=cause, change=answer, name=answer.text))
            else:
                proposals.append(
                    Proposal(cause=cause, change=None, name=answer[0], why_not=answer[1])
                )
    return proposals


def by_strength(causes: Sequence[Cause]) -> list[Cause]:
    """Sort by ceiling, highest first; causes without one come last, in their order."""
    return sorted(causes, key=lambda cause: -(cause.times or 0.0))


def _unknown(_train: _Values, _hardware: Hardware) -> tuple[str, str]:
    return ("-", NO_KNOB)


def _loader_threads(train: _Values, hardware: Hardware) -> Change | tuple[str, str]:
    doubled = 2 * int(train["num_loader_threads"])
    most = max(2, _MOST_THREADS_A_CORE * hardware.cpus_per_task)
    if doubled > most:
        return (
            f"num_loader_threads: {doubled}",
            f"{HARDWARE}: more than {_MOST_THREADS_A_CORE} a core; ask for more cpus_per_task",
        )
    return Change(key="num_loader_threads", value=doubled)


def _prefetch(train: _Values, _hardware: Hardware) -> Change:
    """Propose prefetching: a trial drops what was read ahead before its measured steps."""
    return Change(key=PREFETCH, value=2 * int(train[PREFETCH]))


def _staging(train: _Values, _hardware: Hardware) -> Change | None:
    is_off = train["staging"]["mode"] == "off" and train["reader"] == "index"
    return Change(key="staging.mode", value="beside") if is_off else None


def _compute_threads(train: _Values, hardware: Hardware) -> Change | None:
    """Leave cores to the loader: on a CPU the model shares them."""
    given = train["num_compute_threads"] or hardware.cpus_per_task
    if hardware.device != "cpu" or given < 2:
        return None
    return Change(key="num_compute_threads", value=given // 2)


def _cores(_train: _Values, _hardware: Hardware) -> tuple[str, str]:
    return ("cpus_per_task", "needs another allocation; set it and tune again")


def _decoding(_train: _Values, _hardware: Hardware) -> tuple[str, str]:
    return ("smaller stored images (preprocess)", LEARNED)


def _fewer_microbatches(train: _Values, _hardware: Hardware) -> Change | None:
    number = train["num_microbatches"]
    if number == "auto" or number < 2 or number % 2:
        return None
    return Change(key="num_microbatches", value=number // 2)


def _more_microbatches(train: _Values, _hardware: Hardware) -> Change | None:
    number = train["num_microbatches"]
    return None if number == "auto" else Change(key="num_microbatches", value=2 * number)


def _compile(train: _Values, hardware: Hardware) -> Change | tuple[str, str] | None:
    if train["compile"] is not None:
        return None
    if hardware.device == "cpu":
        return ("compile", f"{HARDWARE}: it is tried on GPUs alone")
    return Change(key="compile", value={})


def _recompute(train: _Values, _hardware: Hardware) -> Change | None:
    is_on = train["activation_checkpointing"]
    return None if is_on else Change(key="activation_checkpointing", value=True)


def _keep_activations(train: _Values, _hardware: Hardware) -> Change | None:
    is_on = train["activation_checkpointing"]
    return Change(key="activation_checkpointing", value=False) if is_on else None


def _keep_gathered(train: _Values, _hardware: Hardware) -> Change | None:
    reshards = train["strategy"] == "fsdp2" and train["sharding"]["reshard_after_forward"]
    return Change(key="sharding.reshard_after_forward", value=False) if reshards else None


def _gather_ahead(train: _Values, hardware: Hardware) -> Change | None:
    is_left = train["strategy"] == "fsdp2" and not train["sharding"]["forward_prefetch"]
    applies = is_left and hardware.device == "cuda"
    return Change(key="sharding.forward_prefetch", value=1) if applies else None


def _replicate(train: _Values, _hardware: Hardware) -> Change | None:
    is_sharded = train["strategy"] == "fsdp2"
    return Change(key="strategy", value="ddp") if is_sharded else None


def _batching(_train: _Values, _hardware: Hardware) -> tuple[str, str]:
    return ("batching", f"{LEARNED}: other samples share a global batch, or their order changes")


def _batch_size(_train: _Values, _hardware: Hardware) -> tuple[str, str]:
    return ("global_batch_size", LEARNED)


KNOBS: Mapping[str, tuple[_Knob, ...]] = {
    "data-wait": (
        *(_loader_threads, _staging, _prefetch, _compute_threads),
        *(_cores, _decoding),
    ),
    "data-wait:threads": (_loader_threads, _prefetch, _cores),
    "data-wait:read-ahead": (_prefetch, _loader_threads),
    "data-wait:storage": (_staging, _loader_threads, _prefetch),
    "data-wait:cores": (_compute_threads, _cores, _decoding),
    "data-wait:decoding": (_cores, _decoding),
    "data-wait:lock": (_decoding,),
    "network-full": (_staging,),
    "meetings": (_replicate, _batch_size),
    "storage-queue": (_staging, _loader_threads),
    "gpu-use": (_fewer_microbatches, _compile, _prefetch),
    "gpu-fluctuates": (_prefetch, _loader_threads),
    "straggler": (_prefetch, _fewer_microbatches, _batching),
    "exposed-communication": (_keep_gathered, _gather_ahead, _replicate),
    "padding": (_batching,),
    "memory-pressure": (_more_microbatches, _recompute),
    "accumulation": (_fewer_microbatches,),
    "small-batch": (_batch_size,),
    "activation-checkpointing": (_keep_activations,),
}
"""Knobs by rule of the report without its stage, or by rule and cause where it distinguishes some.
`checkpoint` and `evaluation` never occur: trials do not save or evaluate."""
NOT_MEASURED = ("checkpoint", "evaluate")
"""Keys that trials cannot measure."""


# Comparison in a tuning: interleaved trials of two arms until the result is clear.
#
# The unit is the run, as in `compare`: each trial is a separate run, started from scratch, and
# gives one number.


MIN_REPEATS = 3
"""Minimum of each arm. Own choice: with 2 the interval is four times as wide."""
MAX_REPEATS = 8
"""Maximum of each arm. Own choice: a smaller difference is not worth the budget."""
MAX_FAILURES = 2
"""Failed trials of the first arm, which ran before: then something else is wrong."""
_ORDER: tuple[Arm, ...] = ("A", "B", "B", "A")
"""Repeated, so that steady drift affects both arms equally."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Valid trials of one comparison."""

    first: tuple[Trial, ...]
    """Trials of arm A that did not fail; `second` those of B."""
    second: tuple[Trial, ...]
    failures: tuple[Trial, ...]

    @property
    def next_arm(self) -> Arm:
        """Return the arm of the next trial."""
        return _ORDER[(len(self.first) + len(self.second)) % len(_ORDER)]

    @property
    def is_begun(self) -> bool:
        """True if any trial was run."""
        return bool(self.first or self.second or self.failures)

    @property
    def verdict(self) -> Verdict | None:
        """Verdict on the second arm against the first; None with too few trials of either."""
        first, second = (tuple(t.speed for t in arm) for arm in (self.first, self.second))
        is_told = min(len(first), len(second)) >= MIN_RUNS and min(*first, *second) > 0
        return _judged(first, second) if is_told else None

    @property
    def second_failure(self) -> str:
        """Reason why the second arm cannot run; empty if it can."""
        return next((t.failure for t in self.failures if t.arm == "B"), "")

    @property
    def is_broken(self) -> bool:
        """True if the first arm, which ran before, fails now."""
        return sum(t.arm == "A" for t in self.failures) >= MAX_FAILURES

    @property
    def is_over(self) -> bool:
        """True if another trial would change nothing."""
        least, most = sorted((len(self.first), len(self.second)))
        if self.second_failure or self.is_broken or least >= MAX_REPEATS:
            return True
        verdict = self.verdict
        if verdict is None or least != most or least < MIN_REPEATS:
            return False
        return verdict.word != "cannot tell" or not may_decide(verdict, least)

    @property
    def num_missing(self) -> int:
        """Trials until a verdict is possible, of both arms; one more pair after an unclear one."""
        num_made = len(self.first) + len(self.second)
        return max(2 * MIN_REPEATS - num_made, 2 - num_made % 2)


@functools.lru_cache
def _judged(first: tuple[float, ...], second: tuple[float, ...]) -> Verdict:
    """Cache the verdict: the progress is determined again after every trial."""
    return judge(first, second)


def may_decide(verdict: Verdict, num_repeats: int) -> bool:
    """Check whether more trials are worthwhile: twice the maximum of repeats could give a verdict.

    Twice, because the spread of three repeats is itself uncertain by such a factor. Own choice.
    """
    return verdict.more_runs is not None and num_repeats + verdict.more_runs <= 2 * MAX_REPEATS


def pairs_of(
    trials: Sequence[Trial], comparison: str, nodes: tuple[str, ...], num_steps: int
) -> Pairs:
    """Return the trials of a comparison, all of the same length and on the same nodes.

    An attempt on other nodes, or with another budget and so another length, restarts a comparison
    that the previous attempt did not finish.

    Args:
        trials: trials of the whole tuning, in order.
        comparison: key of the comparison.
        nodes: nodes of this attempt.
        num_steps: length of a trial of this attempt.
    """
    of_comparison = [trial for trial in trials if trial.comparison == comparison]
    then = _sorted(
        [trial for trial in of_comparison if _likeness(trial) == _likeness(of_comparison[-1])]
    )
    if then.is_over:
        return then
    return _sorted([trial for trial in of_comparison if _likeness(trial) == (nodes, num_steps)])


def _likeness(trial: Trial) -> tuple[tuple[str, ...], int]:
    """Return what must be equal for trials to be compared."""
    return trial.nodes, trial.num_steps


def _sorted(trials: Sequence[Trial]) -> Pairs:
    def arm(name: Arm) -> tuple[Trial, ...]:
        return tuple(trial for trial in trials if trial.arm == name and not trial.failure)

    return Pairs(
        first=arm("A"), second=arm("B"), failures=tuple(trial for trial in trials if trial.failure)
    )


def afford(pairs: Pairs, left_s: float, trial_s: float, *, kept_back: int) -> bool:
    """Check whether the budget suffices for the rest of this comparison, and for what follows.

    Args:
        pairs: trials so far.
        left_s: rest of the budget.
        trial_s: time of one trial.
        kept_back: trials reserved for later.
    """
    return left_s >= (pairs.num_missing + kept_back) * trial_s


# Results of one trial from its step records: its speed, and the findings of the report's rules.


_NO_REMEDY = ("queue-wait", "around-the-steps")
"""Rules on the time around a whole run, which do not apply to a trial."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Measurements of a trial."""

    tokens_per_s: float
    samples_per_s: float
    step_s: float
    data_wait_share: float
    memory_peak_bytes: float
    stage_in_s: float
    """Staging time of rank 0, before the first step."""
    causes: tuple[Cause, ...]
    """Strongest first."""


def read_trial(folder: Path, stage: str, train: Mapping[str, Any]) -> Reading:
    """Read the trial's records with the report's readers, and apply its rules.

    Args:
        folder: holds the trial's timing folder as a stage's holds that of an attempt.
        stage: name of the training.
        train: config of the trial.

    Raises:
        StageError: it recorded no step that counts.
    """
    problems: list[str] = []
    inputs = StageInputs(
        name=stage,
        run=TRAIN_RUN,
        after={},
        num_slices=1,
        resources={},
        attempts=(),
        completions=(),
        timings=read_timings(folder, problems, whole=False),
        readings=read_readings(folder, problems),
        profiles=read_profiles(folder, problems),
        config=train,
    )
    attempts = split_attempts(inputs.timings, WARMUP_STEPS, {})
    speed = speed_of(attempts)
    if speed is None:
        message = f"no step of all ranks is left after the warm-up; {'; '.join(problems)}"
        raise StageError(message.removesuffix("; "))
    numbers = training_numbers(inputs, (), WARMUP_STEPS)
    findings, _ = find((), numbers, (), "")
    memory = numbers[0].memory_peak_bytes.value
    return Reading(
        tokens_per_s=speed.tokens_per_s,
        samples_per_s=speed.samples_per_s,
        step_s=speed.step_s,
        data_wait_share=share_of(numbers[0], "data_wait")[0],
        memory_peak_bytes=memory or 0.0,
        stage_in_s=sum(
            float(span["duration_s"])
            for timing in inputs.timings[:1]
            for span in timing.spans
            if span["name"] == "stage_in"
        ),
        causes=tuple(
            by_strength([_cause(finding, stage) for finding in findings if _counts(finding)])
        ),
    )


def _counts(finding: Finding) -> bool:
    return finding.rule_id.partition(":")[0] not in _NO_REMEDY


def _cause(finding: Finding, stage: str) -> Cause:
    return Cause(
        rule=finding.rule_id.partition(":")[0],
        title=finding.title.removesuffix(f" ({stage})"),
        ceiling=finding.ceiling,
        times=finding.ceiling_times,
        kind=finding.cause,
    )


# Progress of a tuning as plain values: facts, tried changes, and skipped ones.


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Facts that are constant during a tuning."""

    train: Mapping[str, Any]
    """Original config, all its keys."""
    hardware: Hardware
    nodes: tuple[str, ...]
    budget_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """Result of one change."""

    proposal: Proposal
    pairs: Pairs
    outcome: Outcome
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NotTried:
    """Knob that a finding names and that was not tried."""

    name: str
    finding: str
    why: str
    needs_s: float | None = None
    """Budget to compare it, including closing trials; None if the budget is not the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningProgress:
    """Progress of a tuning."""

    ask: Ask | None = None
    """Next trial; None: it is over."""
    problem: str = ""
    """Reason why it cannot continue."""
    advised_budget_min: int | None = None
    """Set if the budget is too small; with a margin."""
    probe: Trial | None = None
    control: Pairs | None = None
    """First arm: with its data; second arm: without."""
    causes: tuple[Cause, ...] = ()
    """Causes of the original training."""
    tried: tuple[Tried, ...] = ()
    not_tried: tuple[NotTried, ...] = ()
    kept: Changes = ()
    closing: Pairs | None = None
    """First arm: before; second arm: after. None if nothing was kept."""
    more_budget_min: int | None = None
    """Budget for one more knob; None if the budget did not exclude any."""
