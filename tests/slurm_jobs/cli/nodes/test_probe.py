"""What `probe` makes of the records that its job left. The status is made up: no job is run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_jobs.cli.nodes.probe import _print_probe, probe_values
from slurm_jobs.formats.node_records.probe_files import ProbePaths, keep_probe
from tests.slurm_jobs.cli.narrow_screen import narrow, rows
from tests.slurm_jobs.nodes.fabricate_probes import probe

__all__ = ["narrow"]

RUN_ID = "mine-20260101-000000-abcd"
OVER = SimpleNamespace(status="completed", stages=(), problems=(), notes=())


@pytest.fixture
def slow_one(tmp_path: Path) -> object:
    """A slow node that was probed now, after three others that are not."""
    for name in ("n1", "n2", "n3"):
        keep_probe(ProbePaths(tmp_path), probe(name), 1)
    found = dataclasses.replace(probe("n4", local_read_bytes_per_s=7e8), run_id=RUN_ID)
    keep_probe(ProbePaths(tmp_path), found, 1)
    return found


def test_a_slow_node_is_named_and_compared_with_all_probed_nodes(
    tmp_path: Path,
    slow_one: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    _print_probe(tmp_path / RUN_ID, OVER, [slow_one], ["n5: not read"])  # type: ignore[arg-type, list-item]
    printed = capsys.readouterr().out
    assert "slow: n4: node-local read 700 MB/s, 35 % of the median of 3 others" in printed
    assert "4 x NVIDIA A100-SXM4-40GB" in printed
    assert "n5: not read" in printed
    assert ".probes" in printed


def test_json_has_the_slow_measures_and_all_numbers(tmp_path: Path, slow_one: object) -> None:
    values = probe_values(tmp_path / RUN_ID, OVER, [slow_one], [])  # type: ignore[arg-type, list-item]
    (slow,) = values["slow"]
    assert (slow["node"], slow["name"], slow["num_others"]) == ("n4", "local_read_bytes_per_s", 3)
    assert slow["share"] == pytest.approx(0.35)
    assert values["nodes"][0]["numbers"]["local_read_bytes_per_s"] == 7e8


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("num_nodes", [1, 2, 5])
def test_probe_has_a_line_a_measure_for_as_many_nodes_as_fit(capsys, num_nodes) -> None:
    over = SimpleNamespace(status="completed", stages=(), problems=(), notes=())
    warm = {"local": {"reads_are_cold": False}}
    names = [f"gpu-a100-{number:02}" for number in range(num_nodes)]
    _print_probe(Path("runs/none"), over, [probe(name, warm) for name in names], [])
    out = capsys.readouterr().out
    tables, _, notes = out.rpartition("\n4 x NVIDIA A100-SXM4-40GB: ")
    assert max(len(line.rstrip()) for line in tables.splitlines()) <= 80
    heads = [name for row in rows(out) if row and set(row) <= set(names) for name in row]
    assert list(dict.fromkeys(heads)) == names
    assert out.count("host to device, pageable ") == -(-num_nodes // 3)
    assert out.count("250 TFLOP/s") == num_nodes
    assert f"node-local reads from memory: {', '.join(names)}\n" in notes
