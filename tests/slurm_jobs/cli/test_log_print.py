"""When `logs` shows a supervisor's log unasked. Slurm's programs are the test's own."""

from pathlib import Path

import pytest

from slurm_jobs.cli import main
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.shared.files import write_json_atomic
from tests.slurm_jobs.run.fabricate import end, make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import account_row, make_fake_slurm


def logs(paths: RunPaths, *words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["logs", str(paths.run_dir), *words])
    assert ended.value.code == 0


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A run whose rank said nothing, and whose supervisor could not write down how it ended."""
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    paths = make_run(tmp_path / "f", {"a": 1})
    submit(paths, "a", 1, "12")
    fake.says("sacct", account_row("12", "NODE_FAIL"))
    attempt = paths.attempt("a", 0, 1)
    attempt.parent.mkdir(parents=True)
    write_json_atomic(attempt, {"started_unix_s": 1.0})
    paths.logs_dir("a").mkdir(parents=True)
    paths.rank_log("a", 0, 1, 0).write_text("")
    lines = "".join(f"line {number}\n" for number in range(30))
    paths.job_log("a", "12").write_text(f"{lines}OSError: [Errno 28] No space left on device\n")
    return paths


HEAD = "==> slurm-12.log <== (the supervisor's, as no rank said why it failed)"


def test_the_supervisors_log_explains_a_failure_without_a_record_of_which_ranks_say_nothing(
    full_disk: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(full_disk)
    said = capsys.readouterr()
    assert said.err == "the log of `a` is empty\n"
    lines = said.out.splitlines()
    assert (lines[0], len(lines)) == (HEAD, 1 + 20)
    assert lines[-1] == "OSError: [Errno 28] No space left on device"
    logs(full_disk, "a", "--tail", "1")
    assert printed(capsys) == [HEAD, lines[-1]]


def test_the_supervisors_log_is_not_shown_twice_nor_where_a_rank_has_spoken(
    full_disk: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(full_disk, "a", "--supervisor")
    assert HEAD not in printed(capsys)
    log = full_disk.rank_log("a", 0, 1, 0)
    log.write_text("said\n")
    logs(full_disk, "a")
    assert printed(capsys) == ["said"]
    log.unlink()
    logs(full_disk, "a")
    lines = printed(capsys)
    assert (HEAD in lines, len(lines)) == (False, 31)
    log.write_text("")
    end(full_disk, "a", [0], "failed", reason="it broke")
    logs(full_disk, "a")
    assert capsys.readouterr() == ("", "the log of `a` is empty\n")
