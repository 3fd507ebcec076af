"""The verbs `compare` and `scaling` on fabricated runs, as a user types them."""

import json
import shutil
from pathlib import Path

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.made_runs import NUM_RUNS, make_runs


def test_repeats_of_two_settings_are_compared(tmp_path, command):
    slow, fast = (
        ",".join(make_runs(tmp_path, name, data_wait_s=wait_s))
        for name, wait_s in (("slow", 0.06), ("fast", 0.03))
    )
    code, out, err = command("compare", slow, fast)
    assert (code, err) == (0, "")
    assert out.startswith("B is faster than A: B / A 1.1")
    assert "nothing that is recorded: the arms are repeats of each other" in out
    code, out, _ = command("compare", slow, fast, "--json")
    found = json.loads(out)
    assert found["tokens"]["word"] == "faster"
    assert found["headline"].startswith("B is faster than A")
    assert len(found["first"]) == NUM_RUNS


def test_a_comparison_of_single_runs_says_so(tmp_path, command):
    slow = make_runs(tmp_path, "slow")[0]
    fast = make_runs(tmp_path, "fast", data_wait_s=0.02)[0]
    code, out, _ = command("compare", slow, fast)
    assert code == 0
    assert out.startswith("Different in these two runs: B / A 1.")
    assert "tokens/s: all tokens over all time, except what is set apart below." in out


def test_repeats_separated_by_spaces_are_refused_with_the_form_with_commas(tmp_path, command):
    runs = make_runs(tmp_path, "slow")[:2] + make_runs(tmp_path, "fast")[:2]
    code, _, err = command("compare", *runs)
    assert code == 2
    assert f"{runs[0]},{runs[1]} {runs[2]},{runs[3]}" in err


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


def test_what_is_no_run_is_an_input_error(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = command("compare", "nothing", "nowhere")
    assert code == 2
    assert "no run `nothing`" in err


def test_a_warm_up_that_is_no_number_is_refused(tmp_path, command):
    code, _, err = command("compare", "a", "b", "--warmup-steps", "-3")
    assert code == 2
    assert "--warmup-steps" in err


def test_a_run_given_twice_is_no_repeat(tmp_path, command):
    one, two, _ = make_runs(tmp_path, "one")
    for words in (
        ("compare", f"{one},{one}", two),
        ("compare", one, one),
        ("scaling", one, two, one),
    ):
        code, _, err = command(*words)
        assert code == 2
        assert "is given twice; repeats must be separate runs" in err


def test_a_copy_of_a_run_is_no_repeat(tmp_path, command):
    one, two, _ = make_runs(tmp_path, "one")
    copy = str(shutil.copytree(one, tmp_path / "copy"))
    for words in (
        ("compare", f"{one},{copy}", two),
        ("compare", one, copy),
        ("scaling", one, two, copy),
    ):
        code, _, err = command(*words)
        assert code == 2
        assert f"{copy} is a copy of {one}: both are run one0; repeats must be" in err


def test_an_arm_without_a_run_is_an_input_error(tmp_path, command):
    code, _, err = command("compare", ",", make_runs(tmp_path, "one")[0])
    assert code == 2
    assert "`,` names no run" in err
