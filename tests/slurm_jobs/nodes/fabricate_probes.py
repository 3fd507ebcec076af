"""Probes of made-up nodes."""

from __future__ import annotations

from typing import Any

from slurm_jobs.formats.node_records.probe_measures import NodeProbe

NUMBERS = {
    "cores_usable": 15.8,
    "core_loops_per_s": 1.0e8,
    "matmul_bf16_flops_per_s": 2.5e14,
    "matmul_fp32_flops_per_s": 1.8e13,
    "host_to_device_pinned_bytes_per_s": 2.4e10,
    "host_to_device_pageable_bytes_per_s": 8.0e9,
    "local_read_bytes_per_s": 2.0e9,
    "local_write_bytes_per_s": 1.0e9,
    "network_bytes_per_s": 1.2e9,
    "network_latency_s": 3e-5,
    "other_busy_cores": 0.1,
}
DETAILS = {
    "cores": {"python": "3.11.7"},
    "local": {"file_system": "xfs", "reads_are_cold": True},
    "matmul": {"device": "cuda", "torch": "2.13.0"},
    "network": [{"with": "n9", "bytes_per_s": 1.2e9, "latency_s": 3e-5}],
}


def probe(node: str, details: Any = None, *, unix_s: float = 1e9, **numbers: Any) -> NodeProbe:
    """A node like all others, but for these numbers; None leaves one out."""
    given = {**NUMBERS, **numbers}
    return NodeProbe(
        node=node,
        run_id="probed-20260101-000000-abcd",
        measured_unix_s=unix_s,
        cpu="AMD EPYC 7742",
        num_cores=128,
        num_asked_cores=16,
        gpus=("NVIDIA A100-SXM4-40GB",) * 4,
        numbers={name: value for name, value in given.items() if value is not None},
        reasons={},
        details={**DETAILS, **(details or {})},
    )
