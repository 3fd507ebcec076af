"""The verb `compare` on fabricated runs, as a user types it."""

import json

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


def test_a_warm_up_that_is_no_number_is_refused(tmp_path, command):
    code, _, err = command("compare", "a", "b", "--warmup-steps", "-3")
    assert code == 2
    assert "--warmup-steps" in err
