"""Sentences and tables that the terminal and the HTML page share. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from slurm_jobs.report.values.cost_model import CostNumbers, Projection, Span
from slurm_jobs.report.values.data_statistics import Bin, DataStatistics
from slurm_jobs.report.values.finding_model import Check
from slurm_jobs.report.values.load_model import Level, NodeLoad
from slurm_jobs.report.values.report_model import RunReport
from slurm_jobs.report.values.stage_model import StageNumbers
from slurm_jobs.report.values.training_model import RankCountRates
from slurm_jobs.shared import units

# Load of nodes in words.


LOAD_COLUMNS = (
    "node", "GPU busy", "p5 to p95", "GPU memory", "CPU busy", "job's cores", "waits for disks",
    "disk read", "received",
)  # fmt: skip


def least_busy(load: NodeLoad) -> float:
    """Return the sort key of nodes: those with the most idle devices come first."""
    busy = load.gpu_busy or load.cpu_busy
    return busy.mean if busy is not None else 1.0


def load_row(load: NodeLoad) -> list[str]:
    """Return the cells in the order of `LOAD_COLUMNS`."""
    gpu = load.gpu_busy
    memory = units.NOT_KNOWN
    if load.gpu_memory_peak_bytes is not None and load.gpu_memory_bytes:
        share = load.gpu_memory_peak_bytes / load.gpu_memory_bytes
        memory = f"{units.num_bytes(load.gpu_memory_peak_bytes)} ({units.percent(share)})"
    cores = load.job_cpu_cores
    return [
        load.node,
        _percent(gpu),
        f"{units.percent(gpu.p5)} to {units.percent(gpu.p95)}" if gpu else units.NOT_KNOWN,
        memory,
        _percent(load.cpu_busy),
        f"{cores.mean:.1f} of {load.num_cores}" if cores else units.NOT_KNOWN,
        _percent(load.cpu_iowait),
        _rate(load.disk_read),
        _rate(load.network_receive),
    ]


def load_table(loads: Sequence[NodeLoad]) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows, without columns that no node has."""
    rows = [load_row(load) for load in loads]
    columns = [
        n for n in range(len(LOAD_COLUMNS)) if any(row[n] != units.NOT_KNOWN for row in rows)
    ]
    return [LOAD_COLUMNS[n] for n in columns], [[row[n] for n in columns] for row in rows]


def load_line(load: NodeLoad) -> str:
    """Return the load in one line, without unknown values."""
    pairs = zip(LOAD_COLUMNS[1:], load_row(load)[1:], strict=True)
    listed = ", ".join(f"{name} {value}" for name, value in pairs if value != units.NOT_KNOWN)
    return f"{load.node}: {listed}"


def _percent(level: Level | None) -> str:
    return units.NOT_KNOWN if level is None else units.percent(level.mean)


def _rate(level: Level | None) -> str:
    return units.NOT_KNOWN if level is None else f"{units.num_bytes(level.mean)}/s"


# Cost and projection in words.


def taken(cost: CostNumbers) -> str:
    """Return `12.3 GPU h, 45.6 CPU h, 78.9 EUR`; empty if nothing is known."""
    numbers = (cost.gpu_hours, cost.cpu_hours, cost.money)
    shown = [units.quantity(number) for number in numbers if number.value]
    return ", ".join(shown)


def parts(cost: CostNumbers) -> list[str]:
    """Return each training's use of GPU-hours: `train: training steps 10.1 GPU h (82 %)`."""
    lines = []
    for stage in cost.stages:
        largest = sorted(stage.parts, key=lambda part: -part.gpu_hours)
        listed = ", ".join(
            f"{part.name} {units.significant(part.gpu_hours)} GPU h ({units.percent(part.share)})"
            for part in largest
            if part.share >= 0.0005
        )
        if listed:
            lines.append(f"{stage.stage}: {listed}")
    return lines


def ahead(projection: Projection, currency: str) -> str:
    """Return `train, to the end: 2 h 05 min to 2 h 31 min for 1,200 steps, 8.1 to 9.9 GPU h`."""
    steps = units.number_of("step", projection.num_steps)
    times = _span_text(projection.seconds, units.seconds)
    text = f"{projection.stage}, {projection.what}: {times} for {steps}"
    if projection.gpu_hours is not None:
        text += f", {_span_text(projection.gpu_hours, units.significant)} GPU h"
    if projection.money is not None:
        text += f", {_span_text(projection.money, units.significant)} {currency}"
    return f"{text} ({projection.basis})"


def _span_text(span: Span, text_of: Callable[[float], str]) -> str:
    low, high = text_of(span.low), text_of(span.high)
    return low if low == high else f"{low} to {high}"


# Advice on requests to Slurm, from the rules.


_EXCHANGE_UNSEEN = (
    "A profile of some steps would show what the exchange between ranks costs; "
    "`slurm-jobs tune` records one."
)
_REQUEST_RULES = {"memory": ("memory-exceeded", "memory-request"), "time": ("time-request",)}
"""Rules on each request, the last of which judges whether it was needed."""


def next_request(report: RunReport, stage: str) -> str:
    """Return `mem_gb: 2; time not judged`; `as asked` if both rules are satisfied."""
    knobs = {f.rule_id: f.next_knob.partition(" (")[0] for f in report.findings}
    outcomes = {check.rule_id: check.outcome for check in report.checks}
    advice, unknown = [], []
    for what, rules in _REQUEST_RULES.items():
        rule_ids = [f"{rule}:{stage}" for rule in rules]
        found = [knobs[rule_id] for rule_id in rule_ids if rule_id in knobs]
        if found:
            advice.append(found[0])
        elif outcomes.get(rule_ids[-1]) != "clear":
            unknown.append(f"{what} not judged")
    if len(unknown) == len(_REQUEST_RULES):
        return "not judged"
    return "; ".join([*(advice or ["as asked"]), *unknown])


def why_stranded(stages: Iterable[StageNumbers]) -> list[str]:
    """Return why stages can never start: lines such as `alarm, last stranded: not needed`."""
    names: dict[str, list[str]] = {}
    for stage in stages:
        if stage.status == "stranded" and stage.status_reason:
            name = units.stage_name(stage.name, is_former=stage.is_former)
            names.setdefault(stage.status_reason, []).append(name)
    return [f"{', '.join(stranded)} stranded: {reason}" for reason, stranded in names.items()]


def no_finding(checks: Sequence[Check]) -> str:
    """Return the text for a report without findings: rules that lacked data count as such, too."""
    abstained = [check.rule_id for check in checks if check.outcome == "abstained"]
    text = "No rule found anything to change"
    if abstained:
        text += f"; {len(abstained)} of {units.number_of('rule', len(checks))} could not judge"
    if any(rule_id.startswith("exposed-communication:") for rule_id in abstained):
        return f"{text}. {_EXCHANGE_UNSEEN}"
    return f"{text}."


def rates(given: RankCountRates) -> str:
    """Return `5,900 tokens/s, 2.91 steps/s over 88 steps`, of one number of ranks."""
    shown = f"{units.quantity(given.tokens_per_s)}, {units.quantity(given.steps_per_s)}"
    return f"{shown} over {units.number_of('step', given.num_steps)}"


# Statistics of a data set, in lines for a terminal.


def statistics_lines(numbers: DataStatistics) -> list[str]:
    """Return two lines for a terminal, three if images differ in size."""
    tokens, images = numbers.num_tokens, numbers.num_images
    has_images = images["max"] > 0
    size = ""
    if has_images and numbers.image_size is not None:
        size = f"; stored at {size_text(*numbers.image_size)}"
    lines = [
        (
            f"tokens a sample: median {tokens['p50']:,.0f}, p95 {tokens['p95']:,.0f}, "
            f"max {tokens['max']:,.0f}; {units.percent(numbers.supervised_share)} supervised"
        ),
        (
            f"images a sample: mean {units.significant(images['mean'])}, "
            f"max {images['max']:,.0f}{size}"
        ),
    ]
    if has_images and numbers.image_size is None and numbers.num_pixels is not None:
        pixels = numbers.num_pixels
        lines.append(
            f"pixels an image: median {pixels['p50']:,.0f}, p95 {pixels['p95']:,.0f}, "
            f"max {pixels['max']:,.0f}"
        )
    return lines


def size_text(width: int, height: int) -> str:
    """Return `640x480`."""
    return f"{width}x{height}"


def bin_text(given: Bin) -> str:
    """Return `128 to 255`, `7`."""
    first, last, _ = given
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"
