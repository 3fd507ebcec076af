"""Findings of reports on planted causes, and the table of docs/explanation/report-causes.md."""

from __future__ import annotations

import os
from collections.abc import Set as AbstractSet
from pathlib import Path

from slurm_jobs.report.values.finding_model import Finding
from slurm_jobs.report.values.report_model import RunReport

BEGIN, END = "<!-- causes: begin -->", "<!-- causes: end -->"
HEAD = ("| planted | found | anything else |", "| --- | --- | --- |")


def told(finding: Finding) -> str:
    """Return `rule`, or `rule:cause` if the rule distinguishes causes."""
    rule = finding.rule_id.partition(":")[0]
    return f"{rule}:{finding.cause}" if finding.cause else rule


def compare(
    what: str, report: RunReport, expected: AbstractSet[str], also: AbstractSet[str] = frozenset()
) -> None:
    """Assert that the findings include all of `expected`, and besides them only those of `also`."""
    found = {told(finding) for finding in report.findings}
    _note(what, found & expected, expected - found, found - expected)
    seen = [(finding.title, *finding.evidence) for finding in report.findings]
    others = [check for check in report.checks if check.outcome != "found"]
    context = [others, *((n.phases, n.loader, n.loads) for n in report.training)]
    assert expected <= found, (seen, context)
    assert found <= expected | also, (seen, context)


def _note(
    what: str, found: AbstractSet[str], missed: AbstractSet[str], others: AbstractSet[str]
) -> None:
    """Write a row into the page that SLURM_JOBS_CAUSES_PAGE names, if it is set."""
    given = os.environ.get("SLURM_JOBS_CAUSES_PAGE")
    if not given:
        return
    page = Path(given)
    before, _, rest = page.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    parts = [_listed(found), f"missed: {_listed(missed)}" if missed else ""]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    rows = [line for line in rows if not line.startswith(f"| {what} |")]
    rows.append(f"| {what} | {'; '.join(filter(None, parts)) or 'nothing'} | {_listed(others)} |")
    page.write_text(before + "\n".join([BEGIN, *HEAD, *rows, END]) + after)


def _listed(rules: AbstractSet[str]) -> str:
    pairs = (rule.partition(":") for rule in sorted(rules))
    return ", ".join(f"`{rule}`{colon and ': '}{cause}" for rule, colon, cause in pairs)
