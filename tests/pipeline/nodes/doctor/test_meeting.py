"""Two nodes meet, here two threads of this machine: clocks, files, and strangers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.nodes.doctor import meeting
from pipeline.nodes.doctor.meeting import meet
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.worker.job_identity import free_port
from tests.contexts import make_context


@pytest.fixture
def contexts(tmp_path: Path) -> list[TaskContext]:
    port, number = free_port(), 3
    first = make_context("doctor", tmp_path, num_nodes=number, num_ranks=number, main_port=port)
    return [replace(first, rank=rank, node_rank=rank) for rank in range(number)]


def test_each_node_bounds_the_first_ones_clock_and_sees_its_file(contexts: list[Any]) -> None:
    with ThreadPoolExecutor(len(contexts)) as pool:
        first, *others = pool.map(meet, contexts)
    assert first.reason == "it is the first node"
    for met in others:
        assert met.clock is not None
        assert met.clock.least_s <= 0 <= met.clock.most_s  # it is the same clock
        assert met.clock.most_s - met.clock.least_s < 1
        assert met.file_s is not None
    assert list(contexts[0].output_dir.iterdir()) == []


def test_a_first_node_that_cannot_be_reached_is_reported_with_its_address(
    contexts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "CONNECT_PATIENCE_S", 0.1)
    met = meet(contexts[1])
    assert met.clock is None
    assert f"127.0.0.1:{contexts[1].main_port}" in met.reason


def test_nodes_that_do_not_come_are_not_waited_for_longer_than_agreed(
    contexts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "CONNECT_PATIENCE_S", 0.1)
    monkeypatch.setattr(meeting, "FILE_PATIENCE_S", 0.1)
    assert "not all nodes came" in meet(contexts[0]).reason


def test_one_node_has_no_meeting(tmp_path: Path) -> None:
    assert meet(make_context("doctor", tmp_path)).reason == "the job has one node"
