"""Method of a report, and what is missing. PURE."""

from __future__ import annotations

from slurm_jobs.report.page.markup import Html, bullets, el, titled_table
from slurm_jobs.report.values.report_model import RunReport


def method_section(report: RunReport) -> Html:
    """Return the notes, the outcome of each rule, and the thresholds."""
    rows = [(check.rule_id, check.outcome, check.reason) for check in report.checks]
    # Each rule once, for any number of stages.
    first = {c.rule_id.partition(":")[0]: c for c in reversed(report.checks)}
    thresholds = [(name, first[name].rule, first[name].source) for name in reversed(first)]
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
        bullets(report.notes),
        titled_table("Rules", ("rule", "outcome", "because"), rows, num_text=3),
        titled_table("Thresholds", ("rule", "finds", "source"), thresholds, num_text=3),
        id="method",
    )
