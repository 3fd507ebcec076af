"""Runs that a user names to compare: no run is a repeat of itself."""

import shutil

from tests.slurm_jobs.cli.made_runs import make_runs


def test_repeats_separated_by_spaces_are_refused_with_the_form_with_commas(tmp_path, command):
    runs = make_runs(tmp_path, "slow")[:2] + make_runs(tmp_path, "fast")[:2]
    code, _, err = command("compare", *runs)
    assert code == 2
    assert f"{runs[0]},{runs[1]} {runs[2]},{runs[3]}" in err


def test_what_is_no_run_is_an_input_error(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = command("compare", "nothing", "nowhere")
    assert code == 2
    assert "no run `nothing`" in err


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
