"""The network between nodes, here processes of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.nodes.measures.network import rounds
from slurm_jobs.formats.node_records.probe_files import ProbePaths, read_probe
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.worker.job_identity import free_port
from tests.contexts import make_context

SMALL = {"budget_s": 2.0, "file_mb": 4, "num_small_files": 5}
ROOT = Path(__file__).parents[4]
_RANK = """
import json, sys
from slurm_jobs.formats.records.record_json import record_from_json
from slurm_jobs.formats.records.task_context import TaskContext
from pipeline.nodes.probe_stage import run
values = json.loads(sys.stdin.read())
print(json.dumps(run(values["config"], record_from_json(TaskContext, values["context"]))))
"""


def _ranks(tmp_path: Path, number: int) -> list[Mapping[str, Any]]:
    """So many nodes, each a process on this machine; what their stages return."""
    port = free_port()
    processes = []
    for rank in range(number):
        context = make_context(
            "probe",
            tmp_path / "run",
            rank=rank,
            num_ranks=number,
            node_rank=rank,
            num_nodes=number,
            node_name=f"n{rank}",
            main_port=port,
            node_local_dir=tmp_path / f"local-{rank}",
        )
        process = subprocess.Popen(
            [sys.executable, "-c", _RANK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"config": SMALL, "context": record_to_json(context)}))
        process.stdin.close()
        processes.append(process)
    outputs = []
    for process in processes:
        assert process.stdout is not None
        outputs.append(process.stdout.read())
    assert [process.wait() for process in processes] == [0] * number
    return [json.loads(output) for output in outputs]


def test_two_nodes_measure_the_network_between_them(tmp_path: Path) -> None:
    first, second = _ranks(tmp_path, 2)
    assert first["network_bytes_per_s"] == second["network_bytes_per_s"] > 1e6
    assert first["network_latency_s"] == second["network_latency_s"] > 0
    (path,) = ProbePaths(tmp_path).files_of("n1")  # written twice, under one name
    assert read_probe(path).details["network"][0]["with"] == "n0"


@pytest.mark.slow
def test_of_three_nodes_each_talks_to_two_and_the_better_talk_counts(tmp_path: Path) -> None:
    _ranks(tmp_path, 3)
    for name in ("n0", "n1", "n2"):
        (path,) = ProbePaths(tmp_path).files_of(name)
        probe = read_probe(path)
        talks = probe.details["network"]
        assert {talk["with"] for talk in talks} == {"n0", "n1", "n2"} - {name}
        assert probe.numbers["network_bytes_per_s"] == max(t["bytes_per_s"] for t in talks)


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 5, 16])
def test_in_each_round_every_rank_is_in_at_most_one_pair(num_ranks: int) -> None:
    every = rounds(num_ranks)
    for pairs in every:
        ranks = [rank for pair in pairs for rank in pair]
        assert len(ranks) == len(set(ranks))
    talks = [frozenset(pair) for pairs in every for pair in pairs]
    assert len(talks) == len(set(talks)) == (1 if num_ranks == 2 else num_ranks)
