"""What to ask of Slurm the next time, as the rules have it: PURE."""

from __future__ import annotations

from slurm_jobs.report.model.run import RunReport

_RULES = {"memory-request": "memory", "time-request": "time"}


def next_request(report: RunReport, stage: str) -> str:
    """`mem_gb: 2; time not judged`; `as asked` where both rules are content."""
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
