"""Tables in a terminal of 80 columns: no cell is broken in two, no line is longer."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_jobs.cli.nodes.probe import _print_probe
from slurm_jobs.formats.timings.profiler_files import (
    OPERATORS_FORMAT_NAME,
    operators_path,
    trace_path,
)
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import run_command
from tests.slurm_jobs.cli.made_runs import make_runs
from tests.slurm_jobs.nodes.fabricate_probes import probe
from tests.slurm_jobs.report.profiles.made_up import event, step, write_trace

ROOT = Path(__file__).resolve().parents[3]
KERNEL = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_align8>(Params)"
LONG = "captions-qwen2-vl-7b-packed-20261121-080611-5b9"


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    run_command(*words)
    out = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    return out


def rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


def test_compare_has_a_line_a_run_and_its_whole_name_below(tmp_path, capsys) -> None:
    first, second = make_runs(tmp_path, LONG), make_runs(tmp_path, "fast", num_ranks=4)
    out = shown(capsys, "compare", ",".join(first), ",".join(second))
    heads = ["ranks", "steps", "tokens/s", "samples/s", "batch", "memory", "loss", "rank-h"]
    table = rows(out)
    begin = table.index(heads) + 1
    assert [row[0] for row in table[begin : begin + 6]] == ["A1", "A2", "A3", "B1", "B2", "B3"]
    assert {len(row) for row in table[begin : begin + 6]} == {10}  # a unit stands by the memory
    assert ["A1", f"{LONG}0"] in table
    assert ["num_ranks", "2", "4"] in table


def test_compare_shows_long_settings_whole(tmp_path, capsys) -> None:
    (first, *_), (second, *_) = make_runs(tmp_path, "a"), make_runs(tmp_path, "b")
    resolved = RunPaths(Path(second)).resolved_spec
    spec = json.loads(resolved.read_text())
    source = "/scratch/models/of/everybody/qwen2-vl-7b-instruct-2026-11-21"
    spec["stages"]["train"]["config"]["model"] = {"source": source}
    resolved.write_text(json.dumps(spec))
    assert f"B  {source}\n" in shown(capsys, "compare", first, second)


def test_scaling_has_a_line_a_number_of_ranks_with_its_bar(tmp_path, capsys) -> None:
    runs = [*make_runs(tmp_path, "two"), *make_runs(tmp_path, "four", num_ranks=4)]
    out = shown(capsys, "scaling", *runs)
    lines = [" ".join(row) for row in rows(out)]
    assert "ranks runs tokens/s times ideal of ideal 95 % interval | is the ideal" in lines
    (four,) = [line for line in lines if line.startswith("4 3 ")]
    assert " to 100 % █" in four


def test_profile_has_a_line_an_operator_and_whole_words(tmp_path, capsys) -> None:
    paths = RunPaths(tmp_path / "run")
    paths.run_dir.mkdir()
    paths.run_json.write_text("{}")
    path = trace_path(paths.timing_dir("train", 0, 1), 0)
    nccl = event("kernel", "ncclDevKernel_AllReduce", 700, 1000)
    write_trace(path, step(4, 0, 1_234_567), event("kernel", KERNEL, 0, 800), nccl)
    operator = {
        "name": KERNEL,
        "kind": "kernel",
        "num_calls": 1_234_567,
        "self_cpu_s": 12.3,
        "cpu_s": 12.3,
        "self_device_s": 1.23,
        "device_s": 1.23,
        "cpu_share": 0.1,
        "device_share": 0.4,
        "self_cpu_bytes": None,
        "self_device_bytes": None,
    }
    table = {"first_step": 4, "num_steps": 1, "wall_s": 1.0, "operators": [operator]}
    operators_path(path.parent, 0).write_text(
        json.dumps({"format": OPERATORS_FORMAT_NAME, **table})
    )
    out = shown(capsys, "profile", str(paths.run_dir))
    assert "computing and communicating" in out
    assert out.count(" a step\n") == 5  # shares, each on its line
    (line,) = [line for line in out.splitlines() if "1,234,567" in line]
    assert line.startswith(" void cutlass::Ker...")
    assert "--json has the full names" in out


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


def test_plan_breaks_no_name_and_no_quantity(capsys) -> None:
    out = shown(capsys, "plan", str(ROOT / "configs/demo.yaml"), "--no-scripts")
    assert ["render", "shapes_demo:render", "-", "1"] in rows(out)
    for whole in ("2 ranks a node with 1 core each", "at most 20 min 00 s", "at most 1 h 00 min"):
        assert whole in out
