"""Probes as text: a node is one row, and a reason is reported once."""

from __future__ import annotations

import dataclasses

from slurm_jobs.nodes.probe.probe_text import (
    COMPUTE_COLUMNS,
    FILE_COLUMNS,
    compute_row,
    file_row,
    reasons,
)
from tests.slurm_jobs.nodes.fabricate_probes import probe


def test_a_node_is_one_row_of_each_table() -> None:
    row = dict(zip(COMPUTE_COLUMNS, compute_row(probe("n1")), strict=True))
    assert row["GPUs"] == "4 x NVIDIA A100-SXM4-40GB"
    assert row["cores usable"] == "15.8 of 16"
    assert row["matmul"] == "250 TFLOP/s bf16, 18.0 TFLOP/s fp32"
    assert row["network: bandwidth, latency"] == "1.20 GB/s, 30.0 us"
    assert row["fastest link"] == "-"
    cells = file_row(probe("n1"))
    assert len(cells) == len(FILE_COLUMNS)
    assert cells[1] == "2.00 GB/s, 1.00 GB/s"
    assert cells[3] == "-"


def test_one_reason_is_reported_once() -> None:
    nodes = [
        dataclasses.replace(probe(name), reasons={"matmul": "no torch", "network": "no torch"})
        for name in ("n1", "n2")
    ]
    assert reasons(nodes) == ["matmul, network not measured on n1, n2: no torch"]
