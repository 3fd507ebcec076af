"""Comparison of two arms of runs: the verdict, its basis, and its limits. PURE."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from slurm_jobs.report.inputs.run_inputs import ReportInputs, StageInputs
from slurm_jobs.report.steps.newest_steps import MIN_STEPS
from slurm_jobs.report.values.training_model import ExposedCommunication
from slurm_jobs.shared import units
from slurm_jobs.shared.statistics import CONFIDENCE, MIN_BLOCK_STEPS, two_sided

# Statistical verdict on the speeds of two arms of runs.
#
# The unit is the run. Steps of one run share the effects of its node, its neighbours and its
# placement, so the spread between steps says nothing about the next run. With an offset of 1.5 %
# between runs, methods that look within runs claim a difference in 69 to 85 % of the comparisons
# of equal settings, a t-test on the means of runs in 2 to 4 % (`benchmarks/statistics.py`).


Word = Literal["faster", "slower", "equal", "cannot tell", "different here", "alike here"]
"""Verdict on the second arm. The last two are for single runs, and claim nothing about the next
one."""

EQUAL_SHARE = 0.01
"""Speeds within this share of each other are called equal."""
MIN_RUNS = 2
"""Minimum of each arm for a claim: with one there is no spread between runs."""
_MAX_DF_UNEQUAL_ARMS, _MAX_DF_TWO_RUNS = 1.2, 1.5
"""Maximum degrees of freedom, as a multiple of the smaller arm's: for arms of unequal size, and for
two runs each. Own choices, by simulation: the largest with which equal settings are called
different in at most 6 % of the comparisons, for any spreads."""
MAX_RUNS = 1_000
"""If more are needed, no number is recommended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Speed of the second arm over that of the first, with its interval."""

    word: Word
    ratio: float
    """Ratio of the geometric means over the runs; above 1 the second is faster."""
    low: float
    high: float
    """End of the `CONFIDENCE` interval; infinite if the runs have no spread."""
    more_runs: int | None = None
    """Additional runs of each arm that suffice for a claim, if the ratio and the spread stay as
    they are. None if none are needed, or more than `MAX_RUNS`."""


def judge(first: Sequence[float], second: Sequence[float]) -> Verdict:
    """Compare the speeds of two arms, one number per run (Welch's t-test on their logarithms).

    With few runs the degrees of freedom are limited, see `_half`.

    Args:
        first: speeds of the runs of the first arm, at least `MIN_RUNS`, each above 0.
        second: speeds of the second arm.

    Raises:
        ValueError: an arm has too few runs, or a speed is not above 0.
    """
    if min(len(first), len(second)) < MIN_RUNS:
        message = f"{MIN_RUNS} runs an arm are needed, not {len(first)} and {len(second)}"
        raise ValueError(message)
    a, b = _logarithms(first), _logarithms(second)
    change, half = _welch(a, b)
    margin = math.log1p(EQUAL_SHARE)
    if abs(change) + half <= margin:  # even if the interval excludes 1
        return _verdict_of("equal", change, half)
    if abs(change) > half:
        return _verdict_of("faster" if change > 0 else "slower", change, half)

    # Half of the interval must be less than the change (then: faster or slower), or than the
    # distance from the change to the margin (then: equal). The larger of the two is reached first.
    wanted = max(abs(change), margin - abs(change))

    def would_decide(num_more: int) -> bool:
        return _half(a, b, num_more) < wanted

    low, high = 0, MAX_RUNS - min(len(a), len(b))
    if not would_decide(high):
        return _verdict_of("cannot tell", change, half)
    while high - low > 1:  # `low` would not, `high` would: more runs give a narrower interval
        middle = (low + high) // 2
        low, high = (low, middle) if would_decide(middle) else (middle, high)
    return _verdict_of("cannot tell", change, half, more_runs=high)


def judge_single(first: Sequence[float], second: Sequence[float]) -> Verdict:
    """Compare one run with one other, by the speeds of their stretches.

    Args:
        first: speeds of consecutive stretches of one run, each long enough that their means are
            nearly independent; see `stretch_speeds`.
        second: speeds of the other run.

    Raises:
        ValueError: a run has fewer than two stretches, or a speed is not above 0.
    """
    if min(len(first), len(second)) < MIN_RUNS:
        message = f"2 stretches a run are needed, not {len(first)} and {len(second)}"
        raise ValueError(message)
    change, half = _welch(_logarithms(first), _logarithms(second))
    return _verdict_of("different here" if abs(change) > half else "alike here", change, half)


def interval(speeds: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of some runs' speeds, and its interval; infinite for one run."""
    logs = _logarithms(speeds)
    mean = _mean(logs)
    if len(logs) < MIN_RUNS:
        return math.exp(mean), 0.0, math.inf
    half = two_sided(CONFIDENCE, len(logs) - 1) * math.sqrt(_variance(logs) / len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _verdict_of(word: Word, change: float, half: float, more_runs: int | None = None) -> Verdict:
    return Verdict(
        word=word,
        ratio=math.exp(change),
        low=math.exp(change - half),
        high=math.exp(change + half),
        more_runs=more_runs,
    )


def _welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Return the difference of means, and half its interval (Welch 1947, Satterthwaite 1946)."""
    return _mean(b) - _mean(a), _half(a, b)


def _half(a: Sequence[float], b: Sequence[float], num_more: int = 0) -> float:
    """Return half of the interval of the difference, if each arm had so many more runs.

    Satterthwaite's degrees of freedom come from the observed spreads, and are limited here. If the
    few runs of the smaller arm agree by chance, the formula gives nearly the degrees of freedom of
    the larger arm, and the interval is too narrow: in a simulation of 2 runs against 8 with a
    spread of a third, 11 % of equal settings are called different.
    """
    sizes = [len(a) + num_more, len(b) + num_more]
    parts = [_variance(values) / size for values, size in zip((a, b), sizes, strict=True)]
    if sum(parts) == 0:
        return 0.0
    num_degrees = sum(parts) ** 2 / sum(
        part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True)
    )
    least = min(sizes) - 1
    if sizes[0] != sizes[1]:
        num_degrees = min(num_degrees, _MAX_DF_UNEQUAL_ARMS * least)
    elif least == 1:
        num_degrees = min(num_degrees, _MAX_DF_TWO_RUNS)
    return two_sided(CONFIDENCE, num_degrees) * math.sqrt(sum(parts))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _logarithms(speeds: Sequence[float]) -> list[float]:
    if not all(math.isfinite(speed) and speed > 0 for speed in speeds):
        message = f"speeds must be above 0, not {list(speeds)}"
        raise ValueError(message)
    return [math.log(speed) for speed in speeds]


# Measures and differences of runs as plain values.


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMeasure:
    """Measures of one run's training, waits included, other work than training separated."""

    run_id: str
    name: str
    stage: str
    num_ranks: int
    device: str
    """`cuda`, `cpu`; empty if not recorded."""
    nodes: tuple[str, ...]
    cards: tuple[str, ...]
    """Names of the GPUs in its nodes' readings, each once, in order."""
    cpus: tuple[str, ...]
    """Models of its nodes' processors, each once, in order."""
    num_steps: int
    """Steps of the speeds: after the warm-up, without compiled or profiled ones."""
    seconds: float
    """Time of these steps, without the separated work."""
    tokens_per_s: float
    """Tokens without padding, of all ranks; 0 if not counted."""
    samples_per_s: float
    samples_per_step: float
    """Sum over all ranks: the global batch."""
    tokens_per_sample: float
    token_stretches: tuple[float, ...]
    """Tokens/s of stretches of the run, in order; see `stretch_speeds`."""
    apart_s: Mapping[str, float]
    """Seconds over all its steps, by step phase that is not training (`checkpoint_s` ...)."""
    num_compiled_steps: int
    """Steps after the warm-up that compiled, which are excluded."""
    memory_peak_bytes: float
    memory_capacity_bytes: float | None
    """Memory of its smallest GPU; None without readings."""
    num_allocator_retries: int
    last_loss: float | None
    rank_hours: float
    """Ranks times hours of all steps of its attempts."""
    phase_shares: Mapping[str, float]
    """Share of the steps by phase of the training; one entry without phases."""
    settings: Mapping[str, str]
    """Its inputs as flat names: config, resources, packages, code."""
    exposed: ExposedCommunication | None = None
    """Communication in its profiled steps; None if no counted attempt was profiled."""
    share_held: float | None = None
    """Share of its requested cores that others kept busy during the steps, on the worst node; None
    without readings."""
    start_share: float | None = None
    """For a run without `token_stretches`: see `shared.statistics.start_share`."""
    num_profiled_steps: int = 0
    """Steps after the warm-up that were profiled, or warmed up the profiler: also excluded."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Setting in which the two arms differ."""

    name: str
    first: tuple[str, ...]
    """Values in the runs of the arm, each once."""
    second: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two arms of runs, the second against the first."""

    first: tuple[RunMeasure, ...]
    second: tuple[RunMeasure, ...]
    tokens: Verdict | None
    """Verdict on real tokens per second; None if runs are too short, or counted none."""
    samples: Verdict | None
    cost_rank_hours: float | None
    """Cost of `more_runs` in both arms, at the mean of these runs."""
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    """Reasons against the claim, or limits of it."""


# Suitability of runs as a base for scaling.
#
# A slow base makes every other point look good. The motivating case: 2 V100 at 12.94 of 16 GB, and
# 8 of them 5.8 times as fast (145 % efficiency). With activation checkpointing, at 9.93 GB, they
# were 4.07 times as fast (102 %).


MEMORY_SHARE = 0.80
"""Peak share of a GPU's memory from which on it is under pressure. It was 81 % in the case above;
PyTorch's profiler warns from 90 %."""
SLOW_START = 0.80
"""Speed of the first tenth of a run, over the median of the others. A lower one suggests
compilation, kernel tuning or a cold cache. Own choice."""
MOST_EFFICIENCY = 1.05
"""Above it, the base was slowed down: caches give at most a few percent. Own choice."""
HELD_SHARE = 0.25
"""Smallest reported share of the requested cores that other processes keep busy. Own choice."""


def problems(runs: Sequence[RunMeasure], others: Sequence[RunMeasure]) -> tuple[str, ...]:
    """Return why runs are a bad base to compare others with; empty if no reason is known.

    Args:
        runs: on the same number of ranks.
        others: runs of the same series on other numbers.
    """
    lines = [line for run in runs for line in _problems_of(run)]
    for what, kinds, usual in (
        ("cards", {r.cards for r in runs}, {r.cards for r in others}),
        ("processors", {r.cpus for r in runs}, {r.cpus for r in others}),
    ):
        known, known_others = kinds - {()}, usual - {()}
        if known and known_others and not known <= known_others:
            lines.append(
                f"different {what} from the rest: {_kinds(known)}, not {_kinds(known_others)}"
            )
    return tuple(dict.fromkeys(lines))


def _problems_of(run: RunMeasure) -> Iterator[str]:
    if run.num_allocator_retries:
        yield f"memory pressure: {run.num_allocator_retries:,} x allocator retry ({run.run_id})"
    capacity = run.memory_capacity_bytes
    if capacity and run.memory_peak_bytes >= MEMORY_SHARE * capacity:
        share = units.percent(run.memory_peak_bytes / capacity)
        yield (
            f"memory pressure: {units.num_bytes(run.memory_peak_bytes)} of "
            f"{units.num_bytes(capacity)} at the peak, {share} ({run.run_id})"
        )
    start = run.start_share
    if run.token_stretches:
        start = run.token_stretches[0] / statistics.median(run.token_stretches[1:])
    if start is not None and start < SLOW_START:
        yield (
            f"its first tenth ran at {units.percent(start)} of the speed of the rest, as if "
            f"it compiled then ({run.run_id}); leave out more steps with --warmup-steps"
        )
    if run.share_held is not None and run.share_held >= HELD_SHARE:
        share = units.percent(run.share_held)
        yield f"other processes kept {share} of its requested cores busy ({run.run_id})"


def memory_not_judged(runs: Sequence[RunMeasure]) -> str:
    """Return the runs whose memory pressure is unknown; empty if there are none.

    On CPUs there is no memory of a GPU to fill.
    """
    silent = [r.run_id for r in runs if r.memory_capacity_bytes is None and r.device != "cpu"]
    if not silent:
        return ""
    return f"memory not judged: no reading shows how much the GPUs had ({', '.join(silent)})"


def _kinds(kinds: set[tuple[str, ...]]) -> str:
    return "; ".join(sorted(", ".join(kind) for kind in kinds))


# Comparison in words.


_WIDE_FACTOR = 3.0
"""Factor between the ends of an interval: settings that matter change a speed by less. Own choice.
"""
_INTERVAL = f"{CONFIDENCE:.0%} interval".replace("%", " %")


def headline(comparison: Comparison) -> str:
    """Return the conclusion, in one sentence."""
    verdict = comparison.tokens
    if verdict is None:
        return f"No verdict: {_why_none(comparison)}."
    rate = f"{change(verdict)} in real tokens a second"
    if verdict.word in {"faster", "slower"}:
        return f"B is {verdict.word} than A: {rate}."
    if verdict.word == "equal":
        return f"A and B are equal within {EQUAL_SHARE * 100:g} %: {rate}."
    if verdict.word == "cannot tell":
        few = " from so few runs" if width_text(verdict.low, verdict.high) else ""
        needed = f"more than {MAX_RUNS} runs of each would be needed"
        if verdict.more_runs is not None and comparison.cost_rank_hours is not None:
            runs = units.number_of("more run", verdict.more_runs)
            needed = (
                f"{runs} of each would suffice, if ratio and spread stay as they are: about "
                f"{units.significant(comparison.cost_rank_hours)} {hours_word(comparison.first[0])}"
            )
        return f"Cannot tell{few}: {rate}; {needed}."
    is_different = verdict.word == "different here"
    return (
        f"{'Different' if is_different else 'No difference'} in these two runs: {rate}, from "
        "stretches within each run. Single runs cannot show whether the next two would agree: give "
        f"{MIN_RUNS} or more of each (A1,A2 B1,B2)."
    )


def change(verdict: Verdict) -> str:
    """Return `B / A 1.032 (95 % interval 1.010 to 1.054)`; without a verdict, the width."""
    wide = width_text(verdict.low, verdict.high) if verdict.word == "cannot tell" else ""
    ends = wide or f"{verdict.low:.3f} to {verdict.high:.3f}"
    return f"B / A {verdict.ratio:.3f} ({_INTERVAL} {ends})"


def width_text(low: float, high: float) -> str:
    """Return `wider than a factor of 1,000` if the interval is uselessly wide; else nothing."""
    if low <= 0 or math.isinf(high) or high / low <= _WIDE_FACTOR:
        return ""
    power = 10 ** math.floor(math.log10(high / low))
    return f"wider than a factor of {int(high / low / power) * power:,}"


def hours_word(run: RunMeasure) -> str:
    """Return the name of an hour of one rank."""
    return "GPU-hours" if run.device == "cuda" else "rank-hours"


def _why_none(comparison: Comparison) -> str:
    runs = (*comparison.first, *comparison.second)
    if not all(run.tokens_per_s for run in runs):
        return "not all runs counted tokens"
    if few := too_few_steps(runs):
        return few
    sizes = len(comparison.first), len(comparison.second)
    if min(sizes) < MIN_RUNS <= max(sizes):
        return f"one arm has a single run; {MIN_RUNS} of each are needed for a claim"
    short = [f"{run.run_id} has {run.num_steps}" for run in runs if not run.token_stretches]
    return (
        f"too few steps after the warm-up: {', '.join(short)}, and {MIN_BLOCK_STEPS} are needed to "
        f"estimate a run's noise; train for longer, or give {MIN_RUNS} or more of each (A1,A2 "
        f"B1,B2), for which {MIN_STEPS} steps each are enough"
    )


def too_few_steps(runs: Sequence[RunMeasure]) -> str:
    """Return the runs whose few steps may all be one stall; empty if there are none."""
    few = [f"{run.run_id} has {run.num_steps}" for run in runs if run.num_steps < MIN_STEPS]
    if not few:
        return ""
    return (
        f"too few steps after the warm-up: {', '.join(few)}, and {MIN_STEPS} are needed; "
        "train for longer"
    )


def notes_once(runs: Sequence[RunMeasure]) -> list[str]:
    """Return the notes of these runs; equal ones are merged, with the names of the runs."""
    names: dict[str, list[str]] = {}
    for run in runs:
        for note in run.notes:
            names.setdefault(note.removeprefix(f"{run.run_id}: "), []).append(run.run_id)
    all_runs = f"all {len(runs)} runs"
    return [
        f"{all_runs if len(ids) == len(runs) > 1 else ', '.join(ids)}: {text}"
        for text, ids in names.items()
    ]


# Inputs of a run as flat names and values, and differences between two arms.


ABSENT = "-"
"""Shown for a setting that a run does not have."""
TRAINING = "train"
"""Name of the compared stage, regardless of its name in each spec."""
DIFFERS_BETWEEN_REPEATS = ("node.", f"{TRAINING}.config.seed", f"{TRAINING}.config.profile.")
"""Prefixes of settings in which repeats may differ: Slurm chooses the nodes, another seed is a
valid repeat, and steps that were profiled are excluded."""
_OTHER_STAGE = "stage "
_WHOLE = "only here"
_RUN_WIDE = ("environment", "setup", "limit")
"""Keys of the spec that affect all stages."""
_CLUSTER_WIDE = ("environment", "setup", "python", "node_local_dir", "slurm", "gpu_slurm")
"""Keys of the cluster profile."""
_NO_SETTING = frozenset({"name", "run", "after", "description"})
"""Keys of a stage in the resolved spec that are not settings."""


def settings_of(inputs: ReportInputs, stage: StageInputs, num_ranks: int) -> dict[str, str]:
    """Return all known inputs of `stage` and its nodes, with secrets hidden."""
    flat = {"num_ranks": str(num_ranks)}
    for name, values in inputs.spec["stages"].items():
        if values.get("run") == "report":
            continue
        settings = {key: value for key, value in values.items() if key not in _NO_SETTING}
        flat |= dict(
            _flatten(settings, TRAINING if name == stage.name else f"{_OTHER_STAGE}{name}")
        )
    for name in _RUN_WIDE:
        flat |= dict(_flatten(inputs.spec.get(name), f"run.{name}"))
    for name in _CLUSTER_WIDE:
        flat |= dict(_flatten(inputs.profile.get(name), f"cluster.{name}"))
    if inputs.submissions:
        newest = inputs.submissions[-1]
        dirty = " with uncommitted changes" if newest.is_dirty else ""
        flat["code"] = f"{newest.commit or 'not known'}{dirty}"
        flat["slurm-jobs"] = newest.slurm_jobs_version
    of_nodes: defaultdict[str, set[str]] = defaultdict(set)
    for node in stage.nodes:
        of_nodes["node.cpu"].add(node.cpu)
        of_nodes["node.gpus"].update(node.gpus)
        of_nodes["node.driver"].update(node.drivers)
        python = inputs.pythons.get(node.python)
        if python is not None:
            of_nodes["python"].add(python.version)
            for name, version in python.packages.items():
                of_nodes[f"package {name}"].add(version)
    return flat | {kind: ", ".join(sorted(values)) for kind, values in of_nodes.items() if values}


def differences(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> list[Difference]:
    """Return settings whose values differ between the arms, those of the training first."""

    def order(name: str) -> tuple[bool, bool, str]:
        is_training = name == "num_ranks" or name.startswith(f"{TRAINING}.")
        return name.startswith(_OTHER_STAGE), not is_training, name

    names = sorted({name for run in (*first, *second) for name in run.settings}, key=order)
    both = [
        Difference(name=name, first=_values(first, name), second=_values(second, name))
        for name in names
    ]
    return [setting for setting in both if set(setting.first) != set(setting.second)]


def in_short(
    listed: Sequence[Difference], first: Sequence[RunMeasure], second: Sequence[RunMeasure]
) -> list[Difference]:
    """Return the differences, with only one line for a stage that one arm does not have."""
    in_first, in_second = (
        {name.partition(".")[0] for run in arm for name in run.settings} for arm in (first, second)
    )
    missing = sorted(name for name in in_first ^ in_second if name.startswith(_OTHER_STAGE))
    return [setting for setting in listed if setting.name.partition(".")[0] not in missing] + [
        Difference(
            name=stage,
            first=(_WHOLE if stage in in_first else ABSENT,),
            second=(_WHOLE if stage in in_second else ABSENT,),
        )
        for stage in missing
    ]


def unlike_within(arm: Sequence[RunMeasure]) -> list[str]:
    """Return names of settings that the runs of one arm do not share, but repeats would."""
    names = sorted({name for run in arm for name in run.settings})
    settings = [name for name in names if not name.startswith(DIFFERS_BETWEEN_REPEATS)]
    return [name for name in settings if len(_values(arm, name)) > 1]


def _values(arm: Sequence[RunMeasure], name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run.settings.get(name, ABSENT) for run in arm))


def _flatten(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield nested mappings by dotted names, list items by number; other values as JSON.

    Strings have no quotes, and null values are omitted.
    """
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flatten(inner, f"{prefix}.{key}")
    elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        for number, inner in enumerate(value):
            yield from _flatten(inner, f"{prefix}[{number}]")
    elif isinstance(value, str):
        yield prefix, value
    elif value is not None and value not in ({}, []):
        yield prefix, json.dumps(value, sort_keys=True)


TOKENS_ALIKE = 0.02
"""Mean real tokens per sample may differ by this share; otherwise the data differ. Own choice."""
_HELD_MORE = 0.10
"""Difference between the arms in the share of requested cores that others held, from which on it is
reported. Own choice."""
_MANY = 6
"""Maximum length of a list of names; more are counted."""


def compare(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> Comparison:
    """Compare the runs of two arms.

    Args:
        first: the runs of the arm that the other is measured against, at least one.
        second: those of the other, at least one.
    """
    runs = (*first, *second)
    tokens = _verdict(first, second, "tokens_per_s") if all(r.tokens_per_s for r in runs) else None
    more = tokens.more_runs if tokens is not None else None
    mean_hours = [_mean([r.rank_hours for r in arm]) for arm in (first, second)]
    return Comparison(
        first=tuple(first),
        second=tuple(second),
        tokens=tokens,
        samples=_verdict(first, second, "samples_per_s"),
        cost_rank_hours=more * sum(mean_hours) if more else None,
        differences=tuple(differences(first, second)),
        warnings=(
            *_run_warnings(first, second),
            *_load_warnings(first, second),
            *_data_warnings(first, second),
            *notes_once(runs),
        ),
    )


def _verdict(
    first: Sequence[RunMeasure], second: Sequence[RunMeasure], speed: str
) -> Verdict | None:
    """Return None if a run is too short, or counted nothing."""
    if min(run.num_steps for run in (*first, *second)) < MIN_STEPS:
        return None
    if min(len(first), len(second)) >= MIN_RUNS:
        a, b = ([getattr(run, speed) for run in arm] for arm in (first, second))
        return judge(a, b) if min(*a, *b) > 0 else None
    if speed != "tokens_per_s" or max(len(first), len(second)) > 1:
        return None
    stretches = [run.token_stretches for run in (*first, *second)]
    return judge_single(*stretches) if all(stretches) else None


def _run_warnings(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> Iterator[str]:
    runs = (*first, *second)
    for name, arm in (("A", first), ("B", second)):
        unlike = unlike_within(arm)
        if unlike:
            listed = ", ".join(unlike[:_MANY])
            if len(unlike) > _MANY:
                listed += f" and {len(unlike) - _MANY} more"
            yield f"the runs of {name} are not repeats of each other: they differ in {listed}"
    devices = {run.device for run in runs if run.device}
    if len(devices) > 1:
        yield f"the runs used different devices: {', '.join(sorted(devices))}"
    if len({run.num_ranks for run in runs}) > 1:
        yield (
            "the numbers of ranks differ: this compares the speeds of whole jobs; "
            "`slurm-jobs scaling` shows what each rank adds"
        )
    for what, kinds in (("cards", {r.cards for r in runs}), ("processors", {r.cpus for r in runs})):
        known = kinds - {()}
        if len(known) > 1:
            yield (
                f"not all runs had the same {what} ({_kinds(known)}): that is part of the "
                "difference"
            )


def _load_warnings(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> Iterator[str]:
    """Yield warnings on other processes on a run's cores: not a setting, but they slow it down."""
    shares_by_arm = [
        [r.share_held for r in arm if r.share_held is not None] for arm in (first, second)
    ]
    means = [_mean(shares) if shares else None for shares in shares_by_arm]
    in_a, in_b = means
    is_unlike = in_a is not None and in_b is not None and abs(in_a - in_b) >= _HELD_MORE
    if (
        is_unlike
        or max((share for shares in shares_by_arm for share in shares), default=0.0) >= HELD_SHARE
    ):
        shown = " and ".join(
            f"not read in {name}" if mean is None else f"{units.percent(mean)} in {name}"
            for name, mean in zip("AB", means, strict=True)
        )
        yield (
            f"other processes kept requested cores busy ({shown}, on average): that is part of the "
            "difference, or hides one"
        )


def _data_warnings(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> Iterator[str]:
    arms = (first, second)
    lengths = [_mean([r.tokens_per_sample for r in arm]) for arm in arms]
    if min(lengths) > 0 and max(lengths) / min(lengths) - 1 > TOKENS_ALIKE:
        yield (
            f"the samples differ: {lengths[0]:.1f} real tokens each in A, {lengths[1]:.1f} "
            "in B; tokens/s and samples/s then mean different things"
        )
    for phase in {name for run in (*first, *second) for name in run.phase_shares}:
        a, b = (_mean([r.phase_shares.get(phase, 0.0) for r in arm]) for arm in arms)
        if abs(a - b) > TOKENS_ALIKE:
            yield (
                "the phases of the training do not have the same shares of the steps in A and B, "
                "and each phase has its own speed"
            )
            break
    batches = [_mean([r.samples_per_step for r in arm]) for arm in arms]
    if max(batches) / min(batches) - 1 > TOKENS_ALIKE:
        yield (
            f"the global batches differ ({batches[0]:.0f} and {batches[1]:.0f} samples a step): "
            "times of steps are not compared, and a step of one arm learns from more samples"
        )
