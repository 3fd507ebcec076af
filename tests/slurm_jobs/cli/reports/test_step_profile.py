"""The verb `profile`: what it prints of the trace that it took."""

import json

import pytest

from slurm_jobs.formats.timings.profiler_files import trace_path
from tests.slurm_jobs.report.profiles.profiled_run import run

__all__ = ["run"]


def test_the_newest_attempts_profile_is_shown(run, command):
    code, out, err = command("profile", run.run_dir)
    assert (code, err) == (0, "")
    assert out.startswith("train, s00000.a0002, rank 0: 1 step\n")
    assert "No device" in out
    assert "No collective was recorded." in out


def test_a_rank_may_be_named_and_json_has_everything(run, command):
    code, out, _ = command("profile", run.run_dir, "--rank", "1", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["occupancy"]["wall_s"] == pytest.approx(2000e-6)
    assert found["steps"][0]["step"] == 4
    assert found["operators"] is None


def test_a_damaged_trace_is_an_error_with_the_file(run, command):
    path = trace_path(run.timing_dir("train", 0, 2), 0)
    path.write_bytes(b"damaged")
    code, _, err = command("profile", run.run_dir)
    assert code == 3
    assert f"{path}: no whole Chrome trace" in err
