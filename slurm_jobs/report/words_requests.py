"""Advice on requests to Slurm, from the rules. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slurm_jobs.report import words
from slurm_jobs.report.model.run import Check, RunReport, StageNumbers
from slurm_jobs.report.model.training import RankCountRates

_EXCHANGE_UNSEEN = (
    "What the exchange between ranks costs would show in a profile of some steps; "
    "`slurm-jobs tune` takes one."
)
_RULES = {"memory-request": "memory", "time-request": "time"}


def next_request(report: RunReport, stage: str) -> str:
    """Return `mem_gb: 2; time not judged`; `as asked` if both rules are satisfied."""
    knobs = {f.rule_id: f.next_knob.partition(" (")[0] for f in report.findings}
    outcomes = {check.rule_id: check.outcome for check in report.checks}
    said, unknown = [], []
    for rule, what in _RULES.items():
        rule_id = f"{rule}:{stage}"
        if rule_id in knobs:
            said.append(knobs[rule_id])
        elif outcomes.get(rule_id) != "clear":
            unknown.append(what)
    if len(unknown) == len(_RULES):
        return "not judged"
    told = said or ["as asked"]
    return "; ".join([*told, *(f"{what} not judged" for what in unknown)])


def why_stranded(stages: Iterable[StageNumbers]) -> list[str]:
    """Return why stages can never start: lines such as `alarm, last stranded: not needed`."""
    names: dict[str, list[str]] = {}
    for stage in stages:
        if stage.status == "stranded" and stage.status_reason:
            name = words.stage_name(stage.name, is_former=stage.is_former)
            names.setdefault(stage.status_reason, []).append(name)
    return [f"{', '.join(stranded)} stranded: {reason}" for reason, stranded in names.items()]


def no_finding(checks: Sequence[Check]) -> str:
    """Return the text for a report without findings: rules that lacked data count as such, too."""
    num = sum(check.outcome == "abstained" for check in checks)
    could_not = f"{num} of {words.number_of('rule', len(checks))} could not judge" if num else ""
    said = "No rule found anything to change" + (f"; {could_not}." if num else ".")
    is_exchange_unseen = any(
        check.outcome == "abstained" and check.rule_id.startswith("exposed-communication:")
        for check in checks
    )
    return f"{said} {_EXCHANGE_UNSEEN}" if is_exchange_unseen else said


def rates(given: RankCountRates) -> str:
    """Return `5,900 tokens/s, 2.91 steps/s over 88 steps`, of one number of ranks."""
    shown = f"{words.quantity(given.tokens_per_s)}, {words.quantity(given.steps_per_s)}"
    return f"{shown} over {words.number_of('step', given.num_steps)}"
