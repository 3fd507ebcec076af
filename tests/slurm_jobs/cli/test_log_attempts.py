"""Whose log `logs --attempt` prints. The run folders are whole; Slurm's programs are the test's."""

from pathlib import Path

import pytest

from slurm_jobs.cli import main
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.shared.files import write_json_atomic
from slurm_jobs.shared.records import AttemptRecord, record_to_json
from tests.slurm_jobs.run.fabricate import make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import make_fake_slurm


def begin(paths: RunPaths, stage: str, slice_index: int, attempt: int, job_id: str) -> None:
    """Write down an attempt as its supervisor does, and that it spoke."""
    record = AttemptRecord(
        stage=stage,
        slice_index=slice_index,
        attempt=attempt,
        job_id=job_id,
        token=f"t-{stage}-{job_id.partition('_')[0]}",
        fingerprint="f",
        started_unix_s=float(attempt),
        node_names=("n1",),
        host="n1",
        pid=7,
        num_ranks=1,
        scheduler="slurm",
        restart=0,
    )
    path = paths.attempt(stage, slice_index, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, record_to_json(record))
    paths.logs_dir(stage).mkdir(parents=True, exist_ok=True)
    with paths.job_log(stage, job_id).open("a") as log:
        log.write(f"job {job_id}, attempt {attempt}\n")


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A job and an array of two, each submitted twice; slice 1 was also requeued by its first."""
    make_fake_slurm(tmp_path / "bin", monkeypatch)
    made = make_run(tmp_path / "r", {"train": 1, "preprocess": 2})
    for stage, number, job_id in (("train", 1, "11"), ("preprocess", 2, "12")):
        submit(made, stage, number, job_id)
    begin(made, "train", 0, 1, "11")
    begin(made, "preprocess", 0, 1, "12_0")
    begin(made, "preprocess", 1, 1, "12_1")
    begin(made, "preprocess", 1, 2, "12_1")
    for stage, number, job_id in (("train", 1, "13"), ("preprocess", 2, "14")):
        submit(made, stage, number, job_id)
    begin(made, "train", 0, 2, "13")
    begin(made, "preprocess", 0, 2, "14_0")
    begin(made, "preprocess", 1, 3, "14_1")
    return made


def logs(paths: RunPaths, *words: str, expect: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["logs", str(paths.run_dir), *words])
    assert ended.value.code == expect


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_the_supervisors_log_is_that_of_the_attempt_that_was_named(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(paths, "train", "--supervisor")
    assert printed(capsys) == ["job 13, attempt 2"]
    logs(paths, "train", "--supervisor", "--attempt", "2")
    assert printed(capsys) == ["job 13, attempt 2"]
    logs(paths, "train", "--supervisor", "--attempt", "1")
    assert printed(capsys) == ["job 11, attempt 1"]
    logs(paths, "train", "--supervisor", "--attempt", "1", "--grep", "attempt")
    assert printed(capsys) == ["slurm-11.log:1:job 11, attempt 1"]


def test_each_array_task_has_the_supervisors_log_of_its_own_attempt(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(paths, "preprocess", "--supervisor", "--attempt", "1")
    assert printed(capsys) == [
        "==> slurm-12_0.log <==",
        "job 12_0, attempt 1",
        "==> slurm-12_1.log <==",
        "job 12_1, attempt 1",
        "job 12_1, attempt 2",
    ]
    logs(paths, "preprocess", "--supervisor", "--attempt", "2")
    assert [line for line in printed(capsys) if line.startswith("==>")] == [
        "==> slurm-14_0.log <==",
        "==> slurm-12_1.log <==",
    ]
    logs(paths, "preprocess", "--supervisor", "--attempt", "3", "--slice", "1")
    assert printed(capsys) == ["job 14_1, attempt 3"]


def test_an_attempt_that_never_began_has_no_supervisors_log(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(paths, "preprocess", "--supervisor", "--attempt", "4", expect=2)
    assert "`preprocess` has no log of that rank or attempt" in capsys.readouterr().err


def test_where_the_named_attempt_has_no_log_of_a_rank_its_own_supervisors_is_printed(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(paths, "train", "--attempt", "1")
    assert printed(capsys) == ["job 11, attempt 1"]
    paths.rank_log("train", 0, 2, 0).write_text("the rank\n")
    logs(paths, "train", "--attempt", "1")
    assert printed(capsys) == ["job 11, attempt 1"]
    logs(paths, "train", "--attempt", "2")
    assert printed(capsys) == ["the rank"]
    logs(paths, "train", "--attempt", "3", expect=2)
    assert "`train` has no log of that rank or attempt" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--attempt", "0"), ("--attempt", "-1"), ("--rank", "-1")])
def test_a_number_that_no_attempt_or_rank_has_is_refused_with_those_that_there_are(
    paths: RunPaths, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    paths.rank_log("train", 0, 2, 0).write_text("the rank\n")
    paths.rank_log("train", 0, 2, 1).write_text("another rank\n")
    logs(paths, "train", *words, expect=2)
    assert "(there is attempt 1-2, rank 0-1)" in capsys.readouterr().err
    logs(paths, "train", "--rank", "7", expect=2)
    assert "(there is attempt 1-2, rank 0-1)" in capsys.readouterr().err
