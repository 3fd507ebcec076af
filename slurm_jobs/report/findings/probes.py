"""Rules on nodes that probes measured. PURE. `findings` describes rules."""

from __future__ import annotations

import re

from slurm_jobs.probes.comparing import MIN_OTHERS, SLOW_SHARE
from slurm_jobs.probes.texts import BY_NAME, slow_text
from slurm_jobs.report import words
from slurm_jobs.report.findings.base import abstain, clear, rule
from slurm_jobs.report.model.probes import ProbedNode
from slurm_jobs.report.model.run import Check, Finding
from slurm_jobs.report.model.training import TrainingNumbers

_OLD_DAYS = 7.0
"""Drivers, disks and neighbours may change within a week. Own choice."""


@rule(
    f"a measure under {words.percent(SLOW_SHARE)} of the lower quartile of the other probed nodes "
    f"of the same hardware, {MIN_OTHERS} of them at least"
)
def slow_node(numbers: TrainingNumbers) -> Finding | Check:
    """Find a node under 80 % of similar nodes' lower quartile in what a training uses."""
    rule_id = f"slow-node:{numbers.stage}"
    probes = numbers.probes
    if probes is None or not probes.probed:
        command = "slurm-jobs probe SPEC" if probes is None else probes.command
        return abstain(rule_id, _with("none of its nodes was ever probed", command))
    compared = [p for p in probes.probed if p.num_compared >= MIN_OTHERS]
    if not compared:
        return abstain(
            rule_id,
            _with(
                f"fewer than {MIN_OTHERS} other nodes of the same hardware were probed",
                probes.command,
            ),
        )
    slow = sorted((p for p in compared if p.slow), key=lambda p: p.slow[0].share)
    if not slow:
        return clear(rule_id, _all_alike(len(compared), len(probes.nodes)))
    return _found(rule_id, numbers.stage, slow)


def _with(reason: str, command: str) -> str:
    """Add the command that would help to the reason."""
    return f"{reason}: `{command}`" if command else f"{reason}, and there is no other machine"


def _all_alike(num_compared: int, num_nodes: int) -> str:
    return (
        f"{num_compared} of its {words.number_of('node', num_nodes)} were probed and compared; no "
        f"measure is under {words.percent(SLOW_SHARE)} of the lower quartile of the others"
    )


def _found(rule_id: str, stage: str, slow: list[ProbedNode]) -> Finding:
    worst = slow[0]
    label = BY_NAME[worst.slow[0].name].label
    names = ",".join(p.node for p in slow)
    others = f" and {words.number_of('other node', len(slow) - 1)}" if len(slow) > 1 else ""
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"{worst.node}{others} measured slow: {label} is "
        f"{words.percent(worst.slow[0].share)} of similar nodes ({stage})",
        text="In synchronous training every rank waits for the slowest, so one slow node slows "
        "all. The numbers are of a probe, not of the training itself.",
        evidence=tuple(
            f"{p.node}, {words.moment(p.measured_unix_s)}: {slow_text(measure)}"
            for p in slow
            for measure in p.slow
        ),
        next_knob=f"leave it out: --set stages.{_stage_key(stage)}.resources.slurm.exclude={names}"
        ", and report it to the site; probe it again first where the confidence is not high",
        ceiling="not known from a probe: the finding on the straggler shows what the steps lose",
        confidence=_confidence(slow),
    )


def _stage_key(stage: str) -> str:
    """Return the stage's name without the slice that its numbers are of."""
    return re.sub(r" \(slice \d+\)$", "", stage)


def _confidence(slow: list[ProbedNode]) -> str:
    doubts = []
    for probe in slow:
        if probe.days_apart > _OLD_DAYS:
            days = f"{probe.days_apart:.0f} days"
            doubts.append(f"{probe.node} was probed {days} before or after the training")
        if probe.other_busy_cores is not None:
            cores = words.significant(probe.other_busy_cores)
            doubts.append(f"others kept {cores} cores of {probe.node} busy meanwhile")
        if any(measure.partner for measure in probe.slow):
            partner = next(m.partner for m in probe.slow if m.partner)
            doubts.append(
                f"the network of {probe.node} was measured with {partner}, which may be "
                "the slow one"
            )
    return f"medium: {'; '.join(doubts)}" if doubts else "high: measured on the node itself"


def probe_evidence(numbers: TrainingNumbers, nodes: str) -> tuple[str, ...]:
    """Return a line for each named node (`a, b and c`) with what probes say of it."""
    names = set(re.split(r", | and ", nodes))
    probed = numbers.probes.probed if numbers.probes is not None else ()
    return tuple(_said_of(probe) for probe in probed if probe.node in names)


def _said_of(probe: ProbedNode) -> str:
    when = words.moment(probe.measured_unix_s)
    if probe.num_compared < MIN_OTHERS:
        said = f"there are no {MIN_OTHERS} other probed nodes of its hardware to compare it with"
    elif probe.slow:
        said = f"measured slow: {slow_text(probe.slow[0])}"
    else:
        said = f"measured like the other {probe.num_compared} of its hardware"
    return f"probe of {probe.node}, {when}: {said}"
