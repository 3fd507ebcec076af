"""What `logs` prints. The run folders are whole; Slurm's programs are the tests' own."""

import subprocess
from pathlib import Path

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.cli.terminal.shown_paths import command_text
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.run_logs.logged_runs import Logs, causes, log, logs, paths, sweep
from tests.slurm_jobs.run.fabricate import end, make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import (
    FakeSlurm,
    account_row,
    make_fake_slurm,
    queue_row,
)

__all__ = ["causes", "logs", "paths", "sweep"]


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A squeue and a sacct that know no job, so that records alone speak."""
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


def test_the_ends_of_all_failed_logs_are_printed_under_their_names(
    paths: RunPaths, logs: Logs
) -> None:
    lines, _ = logs(paths, "preprocess", "--failed", "--tail", "20")
    heads = [line for line in lines if line.startswith("==>")]
    names = ("s00001.a0001.rank-00000", "s00001.a0001.rank-00001", "s00003.a0001.rank-00000")
    assert heads == [f"==> {name}.log <==" for name in names]
    assert lines[0] == "preprocess slices 1,3 failed: it broke"
    assert len(lines) == 1 + len(heads) + 20 + 1 + 20
    assert lines[-1] == "end 3"


@pytest.mark.parametrize("number", ["9" * 18, "9" * 20, "9" * 5000])
def test_a_tail_longer_than_any_log_is_the_whole_log(
    paths: RunPaths, logs: Logs, number: str
) -> None:
    words = ("preprocess", "--slice", "0", "--tail", number)
    assert [line.split(":")[1] for line in logs(paths, *words, "--grep", "end|begin")[0]] == [
        *("1", "33")
    ]
    assert len(logs(paths, *words)[0]) == 33


def test_grep_finds_what_grep_finds(paths: RunPaths, logs: Logs) -> None:
    file = paths.rank_log("preprocess", 0, 1, 0)
    file.write_bytes(b"caf\xc3\xa9 1\nno\xff 2\r\nno 3\n")
    command = ["grep", "-anE", "no|caf", str(file)]
    theirs = subprocess.run(command, capture_output=True, check=True).stdout
    expected = theirs.decode(errors="replace").replace("\r\n", "\n").splitlines()
    lines, _ = logs(paths, "preprocess", "--slice", "0", "--grep", "no|caf")
    assert lines == [f"{file.name}:{line}" for line in expected]


def test_of_a_progress_bar_only_the_states_that_match_are_printed(
    paths: RunPaths, logs: Logs
) -> None:
    paths.rank_log("preprocess", 0, 1, 0).write_bytes(b"10%\r20%\r30% nan\r40%\n")
    lines, _ = logs(paths, "preprocess", "--slice", "0", "--grep", "nan")
    assert lines == ["s00000.a0001.rank-00000.log:1:30% nan"]


def test_grep_without_a_stage_searches_all_stages(sweep: RunPaths, logs: Logs) -> None:
    log(sweep, "z", text="one more\n")
    both = ["fit-1/s00000.a0001.rank-00000.log:1:one", "z/s00000.a0001.rank-00000.log:1:one more"]
    assert logs(sweep, "--grep", "one") == (both, "")
    assert logs(sweep, "--grep", "one", "--slice", "0") == (both, "")


def test_failed_logs_of_all_stages_are_printed_even_if_one_is_empty(
    paths: RunPaths, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(paths, "train", 1, "13")
    end(paths, "train", [0], "failed", reason="it broke")
    log(paths, "train", text="no memory\n")
    for index in (1, 3):
        log(paths, "preprocess", index, text="")
    whole = [
        "preprocess slices 1,3 failed: it broke",
        "==> preprocess/s00001.a0001.rank-00000.log <== (empty)",
        "==> preprocess/s00001.a0001.rank-00001.log <==",
        "the other rank",
        "==> preprocess/s00003.a0001.rank-00000.log <== (empty)",
        "",
        "train failed: it broke",
        "==> train/s00000.a0001.rank-00000.log <==",
        "no memory",
    ]
    assert logs(paths, "--failed", "--tail", "1") == (whole, "")
    monkeypatch.setattr("slurm_jobs.cli.run_logs.logs.MAX_UNNAMED_LOGS", 3)
    said = "... and 2 more logs; name a stage for all of its logs\n"
    assert logs(paths, "--failed") == ([*whole[:2], *whole[5:]], said)


HEAD = "==> slurm-12.log <== (the supervisor's, as no rank said why it failed)"


def test_the_supervisors_log_explains_a_failure_without_a_record(
    tmp_path: Path, slurm: FakeSlurm, logs: Logs
) -> None:
    paths = make_run(tmp_path / "f", {"a": 1})
    submit(paths, "a", 1, "12")
    slurm.says("sacct", account_row("12", "NODE_FAIL"))
    attempt = paths.attempt("a", 0, 1)
    attempt.parent.mkdir(parents=True)
    write_json_atomic(attempt, {"started_unix_s": 1.0})
    log(paths, "a", text="")
    full = "OSError: [Errno 28] No space left on device"
    lines = "".join(f"line {number}\n" for number in range(30))
    paths.job_log("a", "12").write_text(f"{lines}{full}\n")

    printed, said = logs(paths)
    assert "NODE_FAIL before its supervisor could record why" in printed[0]
    assert printed[1:3] == ["==> s00000.a0001.rank-00000.log <== (empty)", HEAD]
    assert (len(printed), printed[-1], said) == (3 + 20, full, "")
    assert logs(paths, "a", "--tail", "1")[0] == [HEAD, full]
    # not twice, nor where a rank has spoken
    assert HEAD not in logs(paths, "a", "--supervisor")[0]
    log(paths, "a", text="said\n")
    assert logs(paths, "a")[0] == ["said"]
    paths.rank_log("a", 0, 1, 0).unlink()
    printed, _ = logs(paths, "a")
    assert (HEAD in printed, len(printed)) == (False, 31)
    log(paths, "a", text="")
    end(paths, "a", [0], "failed", reason="it broke")
    assert logs(paths, "a") == ([], "the log of `a` is empty\n")


def test_without_a_stage_one_log_is_printed_for_each_cause(causes: RunPaths, logs: Logs) -> None:
    """Slice 2 has a record of a completion, too, which counts; it is removed first."""
    for record in causes.completions_dir("preprocess").glob("s00002.*.completed.json"):
        record.unlink()
    printed, said = logs(causes, "--tail", "1")
    assert printed == [
        "preprocess slices 1,3 failed: it broke",
        "==> preprocess/s00001.a0001.rank-00001.log <==",  # the rank that failed first
        "the other rank",
        "",
        "preprocess slice 2 failed: it melted",
        "==> preprocess/s00002.a0001.rank-00000.log <==",
        "end 2",
    ]
    assert (
        said
        == f"logs of all 3 failed slices: {command_text('logs', str(causes.run_dir), '--failed')}\n"
    )


def test_without_a_failure_what_runs_is_printed(
    tmp_path: Path, slurm: FakeSlurm, logs: Logs
) -> None:
    paths = make_run(tmp_path / "living", {"prep": 3, "train": 1, "late": 1})
    submit(paths, "prep", 3, "12")
    submit(paths, "train", 1, "13")
    end(paths, "prep", [0])
    slurm.says(
        "squeue",
        queue_row("12_1", "RUNNING") + queue_row("12_2", "PENDING") + queue_row("13", "RUNNING"),
    )
    for index in range(2):
        log(paths, "prep", index, text=f"row of {index}\n")
    log(paths, "train", text="epoch 1\n")
    running = ["==> prep/s00001.a0001.rank-00000.log <==", "row of 1"]
    running += ["==> train/s00000.a0001.rank-00000.log <==", "epoch 1"]
    assert logs(paths) == (running, "")
    assert logs(paths, "prep", "--slice", "2")[1] == "no log of `prep` slice 2 yet: it is waiting\n"
    log(paths, "train", text="")
    assert logs(paths, "train")[1] == "the log of `train` is empty so far\n"
