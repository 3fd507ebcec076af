"""Ranks whose cores are far from their GPU, by what their records say."""

from __future__ import annotations

import pytest

from tests.slurm_jobs.report.builders import check, finding

SOUND = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005, "num_ranks": 4}


def on_cores(*pairs):
    """Headers of ranks with these cores, and these cores near their GPUs."""
    names = ("device", "cores", "cores_near_gpu")
    return {rank: dict(zip(names, ("cuda", *pair), strict=True)) for rank, pair in enumerate(pairs)}


@pytest.mark.parametrize(
    ("header", "outcome"),
    [
        ({}, "abstained"),
        (on_cores(("0-7", ""), ("8-15", "")), "abstained"),
        (on_cores(("0-99999999999", "0-7"), ("x", "0-7")), "abstained"),
        ({rank: {"device": "cpu", "cores": "0-1"} for rank in range(4)}, "clear"),
        (
            on_cores(("0-7", "0-31"), ("8-15", "0-31"), ("28-35", "32-63"), ("36-43", "32-63")),
            "clear",
        ),
    ],
)
def test_a_rank_is_far_from_its_gpu_only_where_its_record_says_so(report_of, header, outcome):
    assert check(report_of(**SOUND, header=header), "far-from-gpu").outcome == outcome


@pytest.mark.parametrize(
    ("header", "title", "far", "knob"),
    [
        (
            on_cores(("0-7", "32-63"), ("32-39", "0-31")),
            "2 ranks run far from their GPUs (train)",
            [("0 on gpu-01", "0-7", "32-63"), ("1 on gpu-01", "32-39", "0-31")],
            "GPUs in the order of their sockets, because other ranks have the cores near these",
        ),
        (
            on_cores(("0-7", "0-31"), ("8-15", "32-63")),
            "1 rank runs far from its GPU (train)",
            [("1 on gpu-01", "8-15", "32-63")],
            "cores near the GPUs: request whole nodes",
        ),
        (  # Eleven ranks of one core each, eight of them on the first of two nodes.
            on_cores(*((f"{n}", "0-31" if n < 5 else "32-63") for n in range(11))),
            "6 ranks run far from their GPUs (train)",
            [(f"{n} on gpu-0{n // 8 + 1}", f"{n}", "32-63") for n in range(5, 9)],
            "gres-flags: enforce-binding",
        ),
    ],
)
def test_ranks_far_from_their_gpus_are_named_with_the_remedy_that_fits(
    report_of, header, title, far, knob
):
    report = report_of(**SOUND | {"num_ranks": len(header)}, header=header)
    found = finding(report, "far-from-gpu")
    assert found.title == title
    lines = [f"rank {r} has cores {own}, and its GPU is near cores {near}" for r, own, near in far]
    assert list(found.evidence) == lines + ["and 2 more ranks"] * (len(header) > 10)
    assert knob in found.next_knob
    assert "; GPUs in" not in found.next_knob
    assert "PyTorch" in found.source
