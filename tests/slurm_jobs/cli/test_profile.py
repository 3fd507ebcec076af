"""The verb `profile`: which trace it takes, and what it prints."""

import json
import sys
from pathlib import Path

import pytest

from slurm_jobs import cli
from slurm_jobs.common.operator_table import trace_path
from slurm_jobs.run.paths import RunPaths

sys.path.insert(0, str(Path(__file__).parents[1] / "profiles"))  # tests are no package

from made_up import event, step, write_trace


@pytest.fixture
def run(tmp_path):
    """A run folder whose second attempt recorded steps on ranks 0 and 1."""
    paths = RunPaths(tmp_path / "run")
    paths.run_dir.mkdir()
    paths.run_json.write_text("{}")
    for attempt, rank, end in ((1, 0, 500), (2, 0, 1000), (2, 1, 2000)):
        path = trace_path(paths.timing_dir("train", 0, attempt), rank)
        write_trace(path, step(4, 0, end), event("cpu_op", "aten::mm", 0, 400))
    return paths


def said(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        cli.main(["profile", *map(str, words)])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def test_the_newest_attempts_profile_is_shown(run, capsys):
    code, out, err = said(capsys, run.run_dir)
    assert (code, err) == (0, "")
    assert out.startswith("train, s00000.a0002, rank 0: 1 steps")
    assert "No device" in out
    assert "No collective was recorded." in out


def test_a_rank_may_be_named_and_json_has_everything(run, capsys):
    code, out, _ = said(capsys, run.run_dir, "--rank", "1", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["occupancy"]["wall_s"] == pytest.approx(2000e-6)
    assert found["steps"][0]["step"] == 4
    assert found["operators"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rank", "7"), "has no profile of rank 7: set `profile: {steps: [20, 40]}`"),
        (("--stage", "other"), "stage other has no profile"),
    ],
)
def test_a_profile_that_is_not_there_is_told_with_what_makes_one(run, capsys, words, message):
    code, _, err = said(capsys, run.run_dir, *words)
    assert code == 2
    assert message in err


def test_of_several_stages_one_must_be_named(run, capsys):
    path = trace_path(run.timing_dir("second", 0, 1), 0)
    write_trace(path, step(1, 0, 10))
    code, _, err = said(capsys, run.run_dir)
    assert code == 2
    assert "stages second, train have profiles; name one with --stage" in err
    assert said(capsys, run.run_dir, "--stage", "second")[0] == 0


def test_a_damaged_trace_is_an_error_with_the_file(run, capsys):
    path = trace_path(run.timing_dir("train", 0, 2), 0)
    path.write_bytes(b"damaged")
    code, _, err = said(capsys, run.run_dir)
    assert code == 3
    assert f"{path}: no whole Chrome trace" in err
