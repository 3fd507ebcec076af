"""An all-reduce between two nodes, here two processes of this machine each."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from pipeline.nodes.doctor import all_reduce as module
from pipeline.nodes.doctor.all_reduce import all_reduce
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.worker.job_identity import free_port
from tests.contexts import make_context


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TaskContext]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    first = make_context("doctor", tmp_path, num_nodes=2, num_ranks=2, main_port=free_port())
    return [first, replace(first, rank=1, node_rank=1)]


def test_nodes_reduce_a_number_over_the_interface_of_a_training(
    contexts: list[TaskContext],
) -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        found = list(pool.map(all_reduce, contexts))
    assert [facts.problem for facts in found] == ["", ""]
    assert all(facts.interface == "lo" and facts.seconds is not None for facts in found)


@pytest.mark.slow
def test_a_node_that_does_not_come_is_a_problem_and_not_waited_for(
    contexts: list[TaskContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GROUP_LIMIT_S", 1.0)
    facts = all_reduce(contexts[0])
    assert facts.seconds is None
    assert facts.problem
