"""Rule on nodes that measured slow in a probe. PURE."""

from __future__ import annotations

import re

from slurm_jobs.base import units
from slurm_jobs.nodes.probe.node_comparison import MIN_OTHERS, SLOW_SHARE
from slurm_jobs.nodes.probe.probe_text import BY_NAME, slow_text
from slurm_jobs.report.rules.base import abstain, clear, rule
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.load_model import ProbedNode
from slurm_jobs.report.values.training_model import TrainingNumbers

_OLD_DAYS = 7.0
"""Drivers, disks and neighbours may change within a week. Own choice."""


@rule(
    "slow-node",
    f"a measure under {units.percent(SLOW_SHARE)} of the lower quartile of the other probed nodes "
    f"of the same hardware, {MIN_OTHERS} of them at least",
)
def slow_node(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find a node under 80 % of similar nodes' lower quartile in what a training uses."""
    probes = numbers.probes
    command = "slurm-jobs probe SPEC" if probes is None else probes.command
    help_text = f": `{command}`" if command else ", and there is no other machine to compare"
    if probes is None or not probes.probed:
        return abstain(f"none of its nodes has been probed{help_text}")
    compared = [p for p in probes.probed if p.num_compared >= MIN_OTHERS]
    if not compared:
        return abstain(
            f"fewer than {MIN_OTHERS} other nodes of the same hardware were probed{help_text}"
        )
    slow = sorted((p for p in compared if p.slow), key=lambda p: p.slow[0].share)
    if not slow:
        return clear(
            f"{len(compared)} of its {units.number_of('node', len(probes.nodes))} were probed and "
            f"compared; no measure is under {units.percent(SLOW_SHARE)} of the lower quartile of "
            "the others"
        )
    worst = slow[0]
    share = units.percent(worst.slow[0].share)
    others = f" and {units.number_of('other node', len(slow) - 1)}" if len(slow) > 1 else ""
    stage = re.sub(r" \(slice \d+\)$", "", numbers.stage)
    names = ",".join(p.node for p in slow)
    doubts = [doubt for probe in slow for doubt in _doubts(probe)]
    return Finding(
        title=f"{worst.node}{others} measured slow: {BY_NAME[worst.slow[0].name].label} is "
        f"{share} of similar nodes",
        text="In synchronous training every rank waits for the slowest, so one slow node slows "
        "all. The numbers come from a probe, not from the training itself.",
        evidence=tuple(
            f"{p.node}, {units.moment(p.measured_unix_s)}: {slow_text(measure)}"
            for p in slow
            for measure in p.slow
        ),
        next_knob=f"Exclude it: --set stages.{stage}.resources.slurm.exclude={names}, and report "
        "it to the site. Probe it again first if the confidence is not high.",
        ceiling="not known from a probe: see the finding on the straggler",
        confidence=f"medium: {'; '.join(doubts)}"
        if doubts
        else "high: measured on the node itself",
    )


def _doubts(probe: ProbedNode) -> list[str]:
    doubts = []
    if probe.days_apart > _OLD_DAYS:
        days = f"{probe.days_apart:.0f} days"
        doubts.append(f"{probe.node} was probed {days} before or after the training")
    if probe.other_busy_cores is not None:
        cores = units.significant(probe.other_busy_cores)
        doubts.append(f"other processes used {cores} cores of {probe.node} meanwhile")
    if partner := next((measure.partner for measure in probe.slow if measure.partner), ""):
        doubts.append(
            f"the network of {probe.node} was measured with {partner}, which may be the slow one"
        )
    return doubts


def probe_evidence(numbers: TrainingNumbers, nodes: str) -> tuple[str, ...]:
    """Return a line for each named node (`a, b and c`) with the result of its probe."""
    names = set(re.split(r", | and ", nodes))
    lines = []
    for probe in numbers.probes.probed if numbers.probes is not None else ():
        if probe.node not in names:
            continue
        if probe.num_compared < MIN_OTHERS:
            result = (
                f"fewer than {MIN_OTHERS} other nodes of the same hardware were probed, so it "
                "cannot be compared"
            )
        elif probe.slow:
            result = f"measured slow: {slow_text(probe.slow[0])}"
        else:
            result = f"as fast as the other {probe.num_compared} probed nodes of the same hardware"
        lines.append(f"probe of {probe.node}, {units.moment(probe.measured_unix_s)}: {result}")
    return tuple(lines)
