"""A comparison in 80 columns: no cell is broken in two, and names and settings are whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.made_runs import make_runs
from tests.slurm_jobs.cli.narrow_screen import narrow, narrow_output, rows

__all__ = ["narrow"]

LONG = "captions-qwen2-vl-7b-packed-20261121-080611-5b9"


@pytest.mark.usefixtures("narrow")
def test_compare_has_a_line_a_run_and_its_whole_name_below(tmp_path, capsys) -> None:
    first, second = make_runs(tmp_path, LONG), make_runs(tmp_path, "fast", num_ranks=4)
    out = narrow_output(capsys, "compare", ",".join(first), ",".join(second))
    heads = ["ranks", "steps", "tokens/s", "samples/s", "batch", "memory", "loss", "rank-h"]
    table = rows(out)
    begin = table.index(heads) + 1
    assert [row[0] for row in table[begin : begin + 6]] == ["A1", "A2", "A3", "B1", "B2", "B3"]
    assert {len(row) for row in table[begin : begin + 6]} == {10}  # a unit stands by the memory
    assert ["A1", f"{LONG}0"] in table
    assert ["num_ranks", "2", "4"] in table


@pytest.mark.usefixtures("narrow")
def test_compare_shows_long_settings_whole(tmp_path, capsys) -> None:
    (first, *_), (second, *_) = make_runs(tmp_path, "a"), make_runs(tmp_path, "b")
    resolved = RunPaths(Path(second)).resolved_spec
    spec = json.loads(resolved.read_text())
    source = "/scratch/models/of/everybody/qwen2-vl-7b-instruct-2026-11-21"
    spec["stages"]["train"]["config"]["model"] = {"source": source}
    resolved.write_text(json.dumps(spec))
    assert f"B  {source}\n" in narrow_output(capsys, "compare", first, second)
