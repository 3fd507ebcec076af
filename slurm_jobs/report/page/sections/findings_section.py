"""Findings of a report, each on a card. PURE."""

from __future__ import annotations

from slurm_jobs.report.page.markup import Child, Html, el, prose
from slurm_jobs.report.text import sentences
from slurm_jobs.report.values.finding_model import Finding
from slurm_jobs.report.values.report_model import RunReport


def findings_section(report: RunReport) -> Html:
    """Return a card for each finding, or the sentence that there is none."""
    cards = [_finding_card(number, f) for number, f in enumerate(report.findings, 1)]
    nothing = el("p", prose(sentences.no_finding(report.checks)))
    return el("section", el("h2", "Findings"), cards or nothing, id="findings")


def _finding_card(number: int, finding: Finding) -> Html:
    pill = el("span", finding.severity, class_=f"pill p-{finding.severity}")
    facts: dict[str, Child] = {
        "Why": [el("div", prose(line)) for line in finding.evidence],
        "Next": prose(finding.next_knob),
        "Gain": prose(finding.ceiling),
        "Confidence": finding.confidence,
        "Rule": [finding.rule, el("span", f" ({finding.source})", class_="dim")],
    }
    return el(
        "article",
        el("h3", pill, f" {number}. {finding.title}"),
        el("p", prose(finding.text)),
        el("dl", [[el("dt", name), el("dd", fact)] for name, fact in facts.items()]),
        class_=f"card c-{finding.severity}",
    )
