"""Nodes that are alike are one entry in the provenance of a run."""

from __future__ import annotations

from tests.slurm_jobs.report.builders import report_on
from tests.slurm_jobs.report.recorded_provenance import noted, run

__all__ = ["noted", "run"]


def test_equal_nodes_are_listed_once_per_stage(noted):
    told = [(n.stage, n.node_names, n.cpu, n.gpus) for n in report_on(noted).provenance.nodes]
    gpus = (("NVIDIA A100-SXM4-40GB", 8),)
    assert told == [
        ("preprocess", ("cpu-00", "cpu-01", "cpu-02"), "AMD EPYC 7763", ()),
        ("preprocess", ("cpu-03",), "Intel", ()),
        ("train", ("gpu-00", "gpu-01"), "AMD EPYC 7763", gpus),
    ]
