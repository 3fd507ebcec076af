"""Sentences that the terminal and the HTML page share. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slurm_jobs.base import units
from slurm_jobs.report.values.finding_model import RuleOutcome
from slurm_jobs.report.values.report_model import RunReport
from slurm_jobs.report.values.stage_model import StageNumbers
from slurm_jobs.report.values.training_model import RankCountRates

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


def no_finding(checks: Sequence[RuleOutcome]) -> str:
    """Return the text for a report without findings: rules that lacked data count as such, too."""
    abstained = [check.rule_id for check in checks if check.outcome == "abstained"]
    text = "No rule found anything to change"
    if abstained:
        text += f", but {len(abstained)} of {units.number_of('rule', len(checks))} could not judge"
    if any(rule_id.startswith("exposed-communication:") for rule_id in abstained):
        return f"{text}. {_EXCHANGE_UNSEEN}"
    return f"{text}."


def rates(given: RankCountRates) -> str:
    """Return `5,900 tokens/s, 2.91 steps/s over 88 steps`, of one number of ranks."""
    shown = f"{units.quantity(given.tokens_per_s)}, {units.quantity(given.steps_per_s)}"
    return f"{shown} over {units.number_of('step', given.num_steps)}"
