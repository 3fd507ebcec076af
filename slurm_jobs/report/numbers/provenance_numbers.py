"""Provenance of a run and its nodes, for its report. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping

from slurm_jobs.base.json_values import is_count
from slurm_jobs.report.inputs.run_inputs import ReportInputs
from slurm_jobs.report.numbers.current_results import current_results
from slurm_jobs.report.numbers.trainings.training_probes import probes_of_nodes
from slurm_jobs.report.values.provenance_model import (
    DownloadedRepository,
    EqualNodes,
    ProvenanceNumbers,
    RecordedNode,
    RecordedPython,
)

_DOWNLOAD_RUN = "download"


def provenance_numbers(inputs: ReportInputs) -> ProvenanceNumbers:
    """Return the provenance; equal nodes are listed once per stage."""
    users: dict[tuple[str, tuple[str, ...]], dict[str, None]] = {}  # stages by Python and modules
    for stage in inputs.stages:
        for node in stage.nodes:
            users.setdefault((node.python, node.modules), {})[stage.name] = None
    return ProvenanceNumbers(
        submissions=inputs.submissions,
        nodes=tuple(k for stage in inputs.stages for k in node_kinds(stage.name, stage.nodes)),
        pythons=tuple(
            RecordedPython(stages=tuple(names), python=inputs.pythons[fingerprint], modules=modules)
            for (fingerprint, modules), names in users.items()
            if fingerprint in inputs.pythons
        ),
        probes=probes_of_nodes(inputs),
        downloads=tuple(_downloads(inputs)),
    )


def _downloads(inputs: ReportInputs) -> Iterator[DownloadedRepository]:
    results = current_results(inputs)
    for stage in inputs.stages:
        repositories = results[stage.name].get(0, {}).get("repositories")
        if stage.run != _DOWNLOAD_RUN or not isinstance(repositories, list):
            continue
        for values in repositories:
            if isinstance(values, Mapping) and is_count(values.get("num_bytes")):
                yield DownloadedRepository(
                    stage=stage.name,
                    folder=str(values.get("folder")),
                    commit=str(values.get("commit") or ""),
                    num_bytes=values["num_bytes"],
                )


def node_kinds(stage: str, nodes: Iterable[RecordedNode]) -> list[EqualNodes]:
    """Return the nodes of a stage by their hardware and software, each kind once."""
    by_kind: dict[Hashable, list[RecordedNode]] = {}
    for node in nodes:
        # Nodes of one kind differ by a few pages of memory.
        memory_gib = None if node.memory_bytes is None else round(node.memory_bytes / 2**30)
        kind = (node.cpu, node.num_cores, memory_gib, node.system)
        gpus = (tuple(sorted(node.gpus)), node.drivers, node.gpu_problem)
        by_kind.setdefault((kind, gpus), []).append(node)
    return [
        EqualNodes(
            stage=stage,
            node_names=tuple(sorted({node.node_name for node in alike})),
            cpu=alike[0].cpu,
            num_cores=alike[0].num_cores,
            memory_bytes=alike[0].memory_bytes,
            gpus=tuple(sorted(Counter(alike[0].gpus).items())),
            drivers=alike[0].drivers,
            gpu_problem=alike[0].gpu_problem,
            system=alike[0].system,
        )
        for alike in by_kind.values()
    ]
