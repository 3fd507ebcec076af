"""The verb `scaling` on fabricated runs."""

import json
from pathlib import Path

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.made_runs import make_runs


def test_scaling_over_numbers_of_ranks(tmp_path, command):
    runs = [*make_runs(tmp_path, "two"), *make_runs(tmp_path, "four", num_ranks=4)]
    code, out, err = command("scaling", *runs)
    assert (code, err) == (0, "")
    assert out.startswith("Weak scaling (the same batch a rank)")
    assert "4 ranks are 2.0" in out
    code, out, _ = command("scaling", *runs, "--json")
    found = json.loads(out)
    assert [p["num_ranks"] for p in found["series"][0]["as_given"]] == [2, 4]
    assert found["headlines"][0].startswith("4 ranks are 2.0")


def test_runs_that_cannot_be_scaled_are_an_input_error(tmp_path, command):
    code, _, err = command("scaling", *make_runs(tmp_path, "two"))
    assert code == 2
    assert "all runs had 2 ranks; name runs on other numbers too" in err


def test_runs_that_cannot_be_compared_get_a_command_that_shows_differences(tmp_path, command):
    two = make_runs(tmp_path, "two")[0]
    four = make_runs(tmp_path, "four", num_ranks=4)[0]
    resolved = RunPaths(Path(four)).resolved_spec
    spec = json.loads(resolved.read_text())
    spec["stages"]["train"]["config"]["precision"] = "bf16"
    resolved.write_text(json.dumps(spec))
    code, out, _ = command("scaling", f"{two},{four}")
    assert code == 1
    assert "Nothing to compare: no two runs on different" in out
    assert f"compare {two} {four}  # shows the differences" in out
    assert "--set stages.train.resources.nodes=2" in out
    code, out, _ = command("scaling", two, four, "--json")
    found = json.loads(out)
    assert found["headlines"] == []
    assert f"compare {two} {four}" in found["next"][1]
