"""Provenance of a run and its nodes, for its report. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from slurm_jobs.report.inputs.records import ReportInputs
from slurm_jobs.report.model.provenance import (
    NodeFacts,
    NodeKind,
    ProvenanceNumbers,
    StagePython,
)
from slurm_jobs.report.numbers.probes import probes_of_nodes


def provenance_numbers(inputs: ReportInputs) -> ProvenanceNumbers:
    """Return the provenance; equal nodes are listed once per stage."""
    kinds = (kind for stage in inputs.stages for kind in node_kinds(stage.name, stage.nodes))
    return ProvenanceNumbers(
        submissions=inputs.submissions,
        nodes=tuple(kinds),
        pythons=_pythons(inputs),
        probes=probes_of_nodes(inputs),
    )


def node_kinds(stage: str, nodes: Iterable[NodeFacts]) -> list[NodeKind]:
    """Return the nodes of a stage by their hardware and software, each kind once."""
    by_kind: dict[Hashable, list[NodeFacts]] = {}
    for node in nodes:
        kind = (node.cpu, node.num_cores, _whole_gib(node.memory_bytes), node.system)
        gpus = (tuple(sorted(node.gpus)), node.drivers, node.gpu_problem)
        by_kind.setdefault((kind, gpus), []).append(node)
    return [_kind(stage, alike) for alike in by_kind.values()]


def _whole_gib(memory_bytes: int | None) -> int | None:
    """Round to GiB, because nodes of one kind differ by a few pages."""
    return None if memory_bytes is None else round(memory_bytes / 2**30)


def _kind(stage: str, alike: list[NodeFacts]) -> NodeKind:
    first = alike[0]
    return NodeKind(
        stage=stage,
        node_names=tuple(sorted({node.node_name for node in alike})),
        cpu=first.cpu,
        num_cores=first.num_cores,
        memory_bytes=first.memory_bytes,
        gpus=tuple(sorted(Counter(first.gpus).items())),
        drivers=first.drivers,
        gpu_problem=first.gpu_problem,
        system=first.system,
    )


def _pythons(inputs: ReportInputs) -> tuple[StagePython, ...]:
    stages: dict[tuple[str, tuple[str, ...]], dict[str, None]] = {}
    for stage in inputs.stages:
        for node in stage.nodes:
            stages.setdefault((node.python, node.modules), {})[stage.name] = None
    return tuple(
        StagePython(stages=tuple(names), python=inputs.pythons[fingerprint], modules=modules)
        for (fingerprint, modules), names in stages.items()
        if fingerprint in inputs.pythons
    )
