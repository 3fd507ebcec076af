"""Probes of the nodes that a run used. PURE."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurm_jobs.formats.node_records.probe_measures import NodeProbe
from slurm_jobs.nodes.probe.node_comparison import MIN_OTHERS, compare, others_busy
from slurm_jobs.report.attempts.gathered_attempts import AttemptFacts
from slurm_jobs.report.inputs.run_inputs import ReportInputs
from slurm_jobs.report.values.load_model import NodeProbes, ProbedNode
from slurm_jobs.report.values.training_model import TrainingNumbers

_DAY_S = 86400.0


def training_probes(
    numbers: TrainingNumbers, inputs: ReportInputs, attempts: Sequence[AttemptFacts]
) -> NodeProbes:
    """Compare the nodes of a training with similar ones.

    Args:
        numbers: numbers of the training.
        inputs: inputs with the newest probe of each probed node.
        attempts: attempts of its stage.
    """
    nodes = tuple(sorted({rank.node for rank in numbers.ranks if rank.node}))
    probed_as = _names_in_probes(inputs)
    begin = min((a.bar.start_unix_s for a in attempts), default=inputs.read_unix_s)
    end = max((a.bar.end_unix_s for a in attempts), default=inputs.read_unix_s)
    probed = [
        replace(_compared_with_similar(probe, inputs.probes, (begin, end)), node=node)
        for node in nodes
        for probe in inputs.probes
        if probe.node == probed_as.get(node, node)
    ]
    return NodeProbes(nodes=nodes, probed=tuple(probed), command=_command(inputs, nodes))


def _names_in_probes(inputs: ReportInputs) -> Mapping[str, str]:
    """Return the names in probes of a local run's nodes: every machine has a `local0`."""
    if inputs.run.get("scheduler") != "local":
        return {}
    return {facts.node_name: facts.host_name for s in inputs.stages for facts in s.nodes}


def _compared_with_similar(
    probe: NodeProbe, probes: Sequence[NodeProbe], span: tuple[float, float]
) -> ProbedNode:
    begin, end = span
    apart_s = max(0.0, begin - probe.measured_unix_s, probe.measured_unix_s - end)
    comparison = compare(probe, probes)
    return ProbedNode(
        node=probe.node,
        measured_unix_s=probe.measured_unix_s,
        days_apart=apart_s / _DAY_S,
        other_busy_cores=others_busy(probe),
        num_compared=comparison.num_compared,
        slow=comparison.slow,
    )


def _command(inputs: ReportInputs, nodes: Sequence[str]) -> str:
    """Return a command for these nodes; if they are too few to compare, for enough nodes.

    The local scheduler has one machine.
    """
    spec = shlex.quote(str(inputs.run.get("spec_file", "SPEC")))
    if inputs.run.get("scheduler") == "local":
        return ""
    if len(nodes) <= MIN_OTHERS:
        return f"slurm-jobs probe {spec} --nodes {MIN_OTHERS + 1}"
    return f"slurm-jobs probe {spec} --nodelist {shlex.quote(','.join(nodes))}"


def probes_of_nodes(inputs: ReportInputs) -> tuple[NodeProbe, ...]:
    """Return the newest probe of each node that an attempt of the run had."""
    probed_as = _names_in_probes(inputs)
    names = {name for s in inputs.stages for a in s.attempts for name in a.node_names}
    nodes = {probed_as.get(name, name) for name in names}
    return tuple(probe for probe in inputs.probes if probe.node in nodes)
