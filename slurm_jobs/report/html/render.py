"""Report as one HTML file that opens offline. PURE except for reading its template.

No script, no request: everything is drawn here. The order is that of the terminal report.
"""

from __future__ import annotations

from slurm_jobs.report import words
from slurm_jobs.report.html.data import data_section
from slurm_jobs.report.html.markup import Html, definitions, el, join, prose, table
from slurm_jobs.report.html.page import render_page
from slurm_jobs.report.html.provenance import provenance_section
from slurm_jobs.report.html.timeline import timeline_section
from slurm_jobs.report.html.training import step_section, training_section
from slurm_jobs.report.model.run import EvaluationNumbers, Finding, RunReport, StageNumbers
from slurm_jobs.report.words_requests import next_request, no_finding, why_stranded

_MAX_FAILURES = 20
_PROGRESS_COLUMNS = (
    "stage",
    "status",
    "done",
    "attempts",
    "dependency wait",
    "queue wait",
    "longest queue",
    "ran for",
    "median task",
    "p95",
    "slowest",
)
_USE_COLUMNS = (
    "stage",
    "next request",
    "CPUs",
    "CPU used",
    "memory a node",
    "largest task",
    "time limit",
    "longest job",
    "GPUs",
    "GPU busy",
    "CPU hours",
    "GPU hours",
)


def render_html(report: RunReport) -> str:
    """Return the whole page."""
    sections = [
        *(step_section(numbers) for numbers in report.training),
        _findings_section(report),
        timeline_section(report),
        *(training_section(numbers) for numbers in report.training),
        *(data_section(numbers) for numbers in report.data),
        *(_evaluation_section(numbers) for numbers in report.evaluation),
        _stages_section(report),
        provenance_section(report),
        _method_section(report),
    ]
    return render_page(
        title=f"{report.header.title}: run report",
        header=_header(report),
        sections=sections,
        version=report.header.version,
    )


def _header(report: RunReport) -> Html:
    header = report.header
    tiles = [
        el(
            "li",
            el("span", tile.label, class_="label"),
            el("span", tile.value, class_="value"),
            el("span", tile.note, class_="dim"),
        )
        for tile in report.tiles
    ]
    return el(
        "header",
        el("p", el("span", header.status, class_=f"pill p-{header.status}"), " ", header.run_id),
        el("h1", header.title),
        el("p", report.verdict, class_="verdict"),
        el("ul", tiles, class_="tiles"),
    )


def _findings_section(report: RunReport) -> Html:
    cards = [_finding_card(number, f) for number, f in enumerate(report.findings, 1)]
    nothing = el("p", prose(no_finding(report.checks)))
    return el("section", el("h2", "Findings"), cards or nothing, id="findings")


def _finding_card(number: int, finding: Finding) -> Html:
    return el(
        "article",
        el(
            "h3",
            el("span", finding.severity, class_=f"pill p-{finding.severity}"),
            f" {number}. {finding.title}",
        ),
        el("p", prose(finding.text)),
        el(
            "dl",
            el("dt", "Evidence"),
            el("dd", [el("div", prose(line)) for line in finding.evidence]),
            el("dt", "Next knob"),
            el("dd", prose(finding.next_knob)),
            el("dt", "Ceiling"),
            el("dd", prose(finding.ceiling)),
            el("dt", "Confidence"),
            el("dd", finding.confidence),
            el("dt", "Rule"),
            el("dd", finding.rule, el("span", f" ({finding.source})", class_="dim")),
        ),
        class_=f"card c-{finding.severity}",
    )


def _evaluation_section(evaluation: EvaluationNumbers) -> Html:
    numbers = definitions(words.evaluation(evaluation.numbers))
    return el("section", el("h2", f"Evaluation: {evaluation.stage}"), numbers)


def _stages_section(report: RunReport) -> Html:
    slowest = [
        f"slowest task of {stage.name}: {stage.task_time.slowest}"
        for stage in report.stages
        if stage.task_time and stage.task_time.num > 1
    ]
    stranded = why_stranded(report.stages)
    note = (
        "Waits are medians over jobs: submit to eligible, eligible to start. A stage ran for as "
        "long as one of its attempts did, or more at once. Hours are allocated, not busy. CPUs and "
        "GPUs are of one job or array task; the next request is by the rules on memory and time."
    )
    return el(
        "section",
        el("h2", "Stages: waits and use"),
        table(_PROGRESS_COLUMNS, [_progress_row(stage) for stage in report.stages], num_text=2),
        el("ul", [el("li", line) for line in stranded]) if stranded else None,
        el("p", "; ".join(slowest), class_="dim") if slowest else None,
        el("h3", "Asked of Slurm, and used"),
        table(_USE_COLUMNS, [_use_row(report, stage) for stage in report.stages], num_text=2),
        _failures(report),
        el("p", note, class_="dim"),
        id="slurm",
    )


def _failures(report: RunReport) -> Html | None:
    failures = [line for stage in report.stages for line in stage.failures]
    if not failures:
        return None
    more = len(failures) - _MAX_FAILURES
    return join(
        [
            el("h3", "Failed attempts"),
            el("ul", [el("li", line) for line in failures[:_MAX_FAILURES]]),
            el("p", f"and {more} more, in report.json", class_="dim") if more > 0 else None,
        ]
    )


def _progress_row(stage: StageNumbers) -> list[str]:
    times = stage.task_time
    spread = (times.median_s, times.p95_s, times.max_s) if times else ()
    shown = [words.seconds(value) for value in spread] or [words.NOT_KNOWN] * 3
    return [
        words.stage_name(stage.name, is_former=stage.is_former),
        stage.status,
        f"{stage.num_completed}/{stage.num_tasks}",
        f"{stage.num_attempts}",
        words.quantity(stage.dependency_wait_median_s),
        words.quantity(stage.queue_wait_median_s),
        words.quantity(stage.queue_wait_max_s),
        words.quantity(stage.running_s),
        *shown,
    ]


def _use_row(report: RunReport, stage: StageNumbers) -> list[str]:
    numbers = (
        stage.requested_cpus,
        stage.cpu_efficiency,
        stage.requested_mem_bytes,
        stage.max_rss_bytes,
        stage.time_limit_s,
        stage.longest_s,
        stage.requested_gpus,
        stage.gpu_busy,
        stage.cpu_hours,
        stage.gpu_hours,
    )
    name = words.stage_name(stage.name, is_former=stage.is_former)
    return [name, next_request(report, stage.name), *(words.quantity(n) for n in numbers)]


def _method_section(report: RunReport) -> Html:
    rows = [(check.rule_id, check.outcome, check.reason) for check in report.checks]
    text = (
        "Step times are host time from one clock: the phases of a step add up to the step, and "
        "what no phase covers is shown as unexplained. Rates count real tokens over wall time, "
        "waits included. A ceiling says what would be gained if that part took no time at all; "
        "ceilings hold one at a time and do not multiply. A rule without enough data abstains."
    )
    return el(
        "section",
        el("h2", "Method, and what is missing"),
        el("p", text),
        el("ul", [el("li", note) for note in report.notes]),
        el("h3", "Rules"),
        table(("rule", "outcome", "because"), rows, num_text=3),
        el("h3", "Thresholds"),
        table(("rule", "finds", "source"), _thresholds(report), num_text=3),
        id="method",
    )


def _thresholds(report: RunReport) -> list[tuple[str, str, str]]:
    """Return each rule once, for any number of stages."""
    first = {c.rule_id.partition(":")[0]: c for c in reversed(report.checks)}
    return [(name, first[name].rule, first[name].source) for name in reversed(first)]
