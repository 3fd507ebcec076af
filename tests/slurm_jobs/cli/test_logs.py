"""What `logs` prints. The run folders are whole; Slurm's programs are the tests' own."""

import itertools
import subprocess
from pathlib import Path

import pytest

from slurm_jobs.cli import problems
from slurm_jobs.cli.logs import GrowingLogs
from slurm_jobs.cli.problems import last_lines, numbered_lines
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.shared.files import write_json_atomic
from slurm_jobs.shared.records import AttemptRecord, record_to_json
from tests.slurm_jobs.cli.command import run_command
from tests.slurm_jobs.run.fabricate import end, make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, account_row, make_fake_slurm


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A squeue and a sacct that know no job, so that records alone speak."""
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """An array of four of which slices 1 and 3 failed; slice 1 has a rank more."""
    paths = make_run(tmp_path / "r", {"preprocess": 4, "train": 1})
    submit(paths, "preprocess", 4, "12")
    end(paths, "preprocess", [0, 2])
    end(paths, "preprocess", [1, 3], "failed", reason="it broke")
    folder = paths.logs_dir("preprocess")
    folder.mkdir(parents=True)
    for index in range(4):
        text = f"begin {index}\n" + "row\n" * 30 + f"disk quota of {index} exceeded\nend {index}\n"
        paths.rank_log("preprocess", index, 1, 0).write_text(text)
        paths.job_log("preprocess", f"12_{index}").write_text(f"supervisor of {index}\n")
    paths.rank_log("preprocess", 1, 1, 1).write_text("the other rank\n")
    return paths


def logs(paths: RunPaths, *words: str, expect: int = 0) -> None:
    run_command("logs", str(paths.run_dir), *words, code=expect)


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_the_ends_of_all_failed_logs_are_printed_under_their_names(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(paths, "preprocess", "--failed", "--tail", "20")
    lines = printed(capsys)
    heads = [line for line in lines if line.startswith("==>")]
    assert heads == [
        "==> s00001.a0001.rank-00000.log <==",
        "==> s00001.a0001.rank-00001.log <==",
        "==> s00003.a0001.rank-00000.log <==",
    ]
    assert len(lines) == len(heads) + 20 + 1 + 20
    assert lines[-1] == "end 3"


def test_grep_names_file_number_and_line(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(paths, "preprocess", "--grep", r"quota of \d")
    assert printed(capsys) == [
        f"s0000{index}.a0001.rank-00000.log:32:disk quota of {index} exceeded" for index in range(4)
    ]


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["--failed"], ["s00001.a0001.rank-00000.log", "s00003.a0001.rank-00000.log"]),
        (["--slice", "2"], ["s00002.a0001.rank-00000.log"]),
        (["--slice", "1", "--rank", "0"], ["s00001.a0001.rank-00000.log"]),
        (["--attempt", "1", "--slice", "0"], ["s00000.a0001.rank-00000.log"]),
        (["--tail", "2", "--slice", "0"], ["s00000.a0001.rank-00000.log"]),
    ],
)
def test_grep_looks_only_into_the_logs_that_are_chosen(
    paths: RunPaths, capsys: pytest.CaptureFixture[str], words: list[str], files: list[str]
) -> None:
    logs(paths, "preprocess", "--grep", "quota", *words)
    lines = printed(capsys)
    assert [line.partition(":")[0] for line in lines] == files
    assert {line.split(":")[1] for line in lines} == {"32"}


@pytest.mark.parametrize("number", ["9" * 18, "9" * 20, "9" * 5000])
def test_a_tail_longer_than_any_log_is_the_whole_log(
    paths: RunPaths, capsys: pytest.CaptureFixture[str], number: str
) -> None:
    logs(paths, "preprocess", "--slice", "0", "--grep", "end|begin", "--tail", number)
    assert [line.split(":")[1] for line in printed(capsys)] == ["1", "33"]
    logs(paths, "preprocess", "--slice", "0", "--tail", number)
    assert len(printed(capsys)) == 33


def test_grep_searches_the_supervisors_logs_where_told(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(paths, "preprocess", "--grep", "of 3", "--supervisor")
    assert printed(capsys) == ["slurm-12_3.log:1:supervisor of 3"]


def test_grep_finds_what_grep_finds(paths: RunPaths, capsys: pytest.CaptureFixture[str]) -> None:
    log = paths.rank_log("preprocess", 0, 1, 0)
    log.write_bytes(b"caf\xc3\xa9 1\nno\xff 2\r\nno 3\n")
    logs(paths, "preprocess", "--slice", "0", "--grep", "no|caf")
    command = ["grep", "-anE", "no|caf", str(log)]
    theirs = subprocess.run(command, capture_output=True, check=True).stdout
    expected = theirs.decode(errors="replace").replace("\r\n", "\n").splitlines()
    assert printed(capsys) == [f"{log.name}:{line}" for line in expected]


def test_of_a_progress_bar_only_the_states_that_match_are_printed(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    paths.rank_log("preprocess", 0, 1, 0).write_bytes(b"10%\r20%\r30% nan\r40%\n")
    logs(paths, "preprocess", "--slice", "0", "--grep", "nan")
    assert printed(capsys) == ["s00000.a0001.rank-00000.log:1:30% nan"]


@pytest.mark.parametrize("words", [["--grep", "nowhere"], ["--failed", "--grep", "begin 2"]])
def test_grep_without_a_match_ends_with_1_as_grep_does(
    paths: RunPaths, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    logs(paths, "preprocess", *words, expect=1)
    assert printed(capsys) == []


def test_grep_without_a_stage_searches_all_stages(
    sweep: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.rank_log("z", 0, 1, 0).write_text("one more\n")
    logs(sweep, "--grep", "one")
    both = [
        "fit-1/s00000.a0001.rank-00000.log:1:one",
        "z/s00000.a0001.rank-00000.log:1:one more",
    ]
    assert printed(capsys) == both
    logs(sweep, "--grep", "one", "--slice", "0")
    assert printed(capsys) == both
    logs(sweep, "--grep", "nowhere", expect=1)
    assert printed(capsys) == []


def test_grep_for_an_attempt_that_no_stage_has_tells_of_every_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = make_run(tmp_path / "many", {"clean": 1, "train": 1, "later": 1})
    for number, name in enumerate(("clean", "train"), start=1):
        submit(paths, name, 1, str(number))
        paths.logs_dir(name).mkdir(parents=True)
        paths.rank_log(name, 0, 1, 0).write_text("epoch 1\n")
    logs(paths, "--grep", "epoch", "--attempt", "7", expect=2)
    said = capsys.readouterr().err
    assert "no log of `later` yet" in said
    assert "none of `clean`, `train` has a log of that rank or attempt; without" in said
    logs(paths, "train", "--grep", "epoch", "--attempt", "7", expect=2)
    assert "`train` has no log of that rank or attempt; without" in capsys.readouterr().err


def test_grep_without_a_stage_searches_those_that_have_the_slice(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(paths, "--grep", "quota", "--slice", "3")
    assert printed(capsys) == ["preprocess/s00003.a0001.rank-00000.log:32:disk quota of 3 exceeded"]
    logs(paths, "--grep", "quota", "--slice", "4", expect=2)
    assert "`preprocess` has the slices 0 to 3" in capsys.readouterr().err


def test_a_bad_pattern_is_an_input_error_that_says_what_is_wrong(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(paths, "preprocess", "--grep", "quota (of", expect=2)
    errors = capsys.readouterr().err
    assert "quota (of" in errors
    assert "missing )" in errors


@pytest.mark.parametrize("words", [["--follow", "--grep", "x"], ["--tail", "-1"]])
def test_what_makes_no_sense_together_is_refused(paths: RunPaths, words: list[str]) -> None:
    logs(paths, "preprocess", *words, expect=2)


def test_where_no_slice_failed_this_is_said(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(paths, "train", "--failed")
    assert "no slice of `train` failed" in capsys.readouterr().err


def test_failed_logs_of_all_stages_are_printed_and_an_empty_one_hides_no_other(
    paths: RunPaths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(paths, "train", 1, "13")
    end(paths, "train", [0], "failed", reason="it broke")
    paths.logs_dir("train").mkdir(parents=True)
    paths.rank_log("train", 0, 1, 0).write_text("no memory\n")
    for index in (1, 3):
        paths.rank_log("preprocess", index, 1, 0).write_text("")
    logs(paths, "--failed", "--tail", "1")
    whole = [
        "==> preprocess/s00001.a0001.rank-00000.log <== (empty)",
        "==> preprocess/s00001.a0001.rank-00001.log <==",
        "the other rank",
        "==> preprocess/s00003.a0001.rank-00000.log <== (empty)",
        "==> train/s00000.a0001.rank-00000.log <==",
        "no memory",
    ]
    assert printed(capsys) == whole
    monkeypatch.setattr("slurm_jobs.cli.logs.MAX_FAILED_LOGS", 3)
    logs(paths, "--failed")
    out, err = capsys.readouterr()
    assert out.splitlines() == whole[:4]
    assert err == "... and 1 more log; name a stage for all of its logs\n"


@pytest.fixture
def ended(tmp_path: Path) -> RunPaths:
    """A complete run of which `train` has said something last, and `report` nothing."""
    paths = make_run(tmp_path / "e", {"preprocess": 2, "train": 1, "report": 1})
    for stage, number, job_id in (("preprocess", 2, "12"), ("train", 1, "13"), ("report", 1, "14")):
        submit(paths, stage, number, job_id)
        end(paths, stage, range(number))
        paths.logs_dir(stage).mkdir(parents=True)
        for index in range(number):
            paths.rank_log(stage, index, 1, 0).write_text("" if stage == "report" else "said\n")
    return paths


def test_without_a_stage_the_last_that_has_said_something_is_shown(
    ended: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.rank_log("train", 0, 1, 0).write_text("the last words\n")
    logs(ended)
    assert capsys.readouterr() == ("the last words\n", "")


def test_where_no_stage_has_said_anything_this_is_said(
    ended: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    for stage, index in (("preprocess", 0), ("preprocess", 1), ("train", 0)):
        ended.rank_log(stage, index, 1, 0).write_text("")
    logs(ended)
    assert capsys.readouterr() == ("", "the log of `report` is empty\n")
    logs(ended, "preprocess")
    assert capsys.readouterr() == ("", "the logs of `preprocess` are empty\n")


def test_an_empty_log_among_others_is_called_so(
    ended: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.rank_log("preprocess", 0, 1, 0).write_text("")
    logs(ended, "preprocess")
    assert printed(capsys) == [
        "==> s00000.a0001.rank-00000.log <== (empty)",
        "==> s00001.a0001.rank-00000.log <==",
        "said",
    ]


def test_of_a_stage_without_any_log_no_rank_is_missed(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(paths, "train", "--rank", "0")
    assert capsys.readouterr().err == "no log of `train` yet\n"
    logs(paths, "preprocess", "--rank", "7", expect=2)
    assert "no log of that rank or attempt" in capsys.readouterr().err


def test_a_misspelt_stage_of_the_newest_run_is_told_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "r", {"preprocess": 1, "train": 1})
    run_command("logs", "trian", code=2)
    assert "(preprocess, train); did you mean `train`?" in capsys.readouterr().err


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """The newest run: two combinations of `fit`, one of which has a log, and another stage."""
    monkeypatch.chdir(tmp_path)
    origins = {"fit-1": "fit", "fit-2": "fit"}
    paths = make_run(tmp_path / "runs" / "r", {"fit-1": 1, "fit-2": 1, "z": 1}, origins=origins)
    for number, stage in enumerate(("fit-1", "fit-2", "z")):
        submit(paths, stage, 1, str(number))
        end(paths, stage, [0])
        paths.logs_dir(stage).mkdir(parents=True)
    paths.rank_log("fit-1", 0, 1, 0).write_text("one\n")
    return paths


def test_a_matrix_stages_own_name_means_the_logs_of_all_its_combinations(
    sweep: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(sweep, "fit")
    assert printed(capsys) == ["==> fit-1/s00000.a0001.rank-00000.log <==", "one"]
    sweep.rank_log("fit-2", 0, 1, 0).write_text("two\n")
    whole = [
        "==> fit-1/s00000.a0001.rank-00000.log <==",
        "one",
        "==> fit-2/s00000.a0001.rank-00000.log <==",
        "two",
    ]
    logs(sweep, "fit")
    assert printed(capsys) == whole
    logs(sweep, "fit", "--follow")
    assert printed(capsys) == whole
    logs(sweep, "fit", "--grep", "w")
    assert printed(capsys) == ["fit-2/s00000.a0001.rank-00000.log:1:two"]
    run_command("logs", "fit", "--tail", "1")
    assert printed(capsys) == whole


def test_the_name_of_one_combination_means_its_logs_alone(
    sweep: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(sweep, "fit-1")
    assert printed(capsys) == ["one"]
    logs(sweep, "fitt", expect=2)
    assert "no stage `fitt`; did you mean `fit`?" in capsys.readouterr().err


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
def attempts(tmp_path: Path) -> RunPaths:
    """A job and an array of two, each submitted twice; slice 1 was also requeued by its first."""
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


def test_the_supervisors_log_is_that_of_the_attempt_that_was_named(
    attempts: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(attempts, "train", "--supervisor")
    assert printed(capsys) == ["job 13, attempt 2"]
    logs(attempts, "train", "--supervisor", "--attempt", "2")
    assert printed(capsys) == ["job 13, attempt 2"]
    logs(attempts, "train", "--supervisor", "--attempt", "1")
    assert printed(capsys) == ["job 11, attempt 1"]
    logs(attempts, "train", "--supervisor", "--attempt", "1", "--grep", "attempt")
    assert printed(capsys) == ["slurm-11.log:1:job 11, attempt 1"]


def test_each_array_task_has_the_supervisors_log_of_its_own_attempt(
    attempts: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(attempts, "preprocess", "--supervisor", "--attempt", "1")
    assert printed(capsys) == [
        "==> slurm-12_0.log <==",
        "job 12_0, attempt 1",
        "==> slurm-12_1.log <==",
        "job 12_1, attempt 1",
        "job 12_1, attempt 2",
    ]
    logs(attempts, "preprocess", "--supervisor", "--attempt", "2")
    assert [line for line in printed(capsys) if line.startswith("==>")] == [
        "==> slurm-14_0.log <==",
        "==> slurm-12_1.log <==",
    ]
    logs(attempts, "preprocess", "--supervisor", "--attempt", "3", "--slice", "1")
    assert printed(capsys) == ["job 14_1, attempt 3"]


def test_an_attempt_that_never_began_has_no_supervisors_log(
    attempts: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(attempts, "preprocess", "--supervisor", "--attempt", "4", expect=2)
    assert "`preprocess` has no log of that rank or attempt" in capsys.readouterr().err


def test_where_the_named_attempt_has_no_log_of_a_rank_its_own_supervisors_is_printed(
    attempts: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(attempts, "train", "--attempt", "1")
    assert printed(capsys) == ["job 11, attempt 1"]
    attempts.rank_log("train", 0, 2, 0).write_text("the rank\n")
    logs(attempts, "train", "--attempt", "1")
    assert printed(capsys) == ["job 11, attempt 1"]
    logs(attempts, "train", "--attempt", "2")
    assert printed(capsys) == ["the rank"]
    logs(attempts, "train", "--attempt", "3", expect=2)
    assert "`train` has no log of that rank or attempt" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--attempt", "0"), ("--attempt", "-1"), ("--rank", "-1")])
def test_a_number_that_no_attempt_or_rank_has_is_refused_with_those_that_there_are(
    attempts: RunPaths, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    attempts.rank_log("train", 0, 2, 0).write_text("the rank\n")
    attempts.rank_log("train", 0, 2, 1).write_text("another rank\n")
    logs(attempts, "train", *words, expect=2)
    assert "(there is attempt 1-2, rank 0-1)" in capsys.readouterr().err
    logs(attempts, "train", "--rank", "7", expect=2)
    assert "(there is attempt 1-2, rank 0-1)" in capsys.readouterr().err


@pytest.fixture
def full_disk(tmp_path: Path, slurm: FakeSlurm) -> RunPaths:
    """A run whose rank said nothing, and whose supervisor could not write down how it ended."""
    paths = make_run(tmp_path / "f", {"a": 1})
    submit(paths, "a", 1, "12")
    slurm.says("sacct", account_row("12", "NODE_FAIL"))
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


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("num_lines", [0, 1, 2, 5, 99])
def test_the_last_lines_are_those_at_the_end_wherever_blocks_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_lines: int, ending: str
) -> None:
    monkeypatch.setattr(problems, "_BLOCK_BYTES", 7)
    lines = [f"line {number} " + "é" * number for number in range(6)]
    log = tmp_path / "log"
    log.write_text("\n".join(lines) + ending)
    assert last_lines(log, num_lines) == (lines[-num_lines:] if num_lines else [])


@pytest.mark.parametrize("text", ["", "\n", "\n\n", "a", "a\r\nb\r\n"])
def test_short_logs_have_the_lines_that_they_have(tmp_path: Path, text: str) -> None:
    log = tmp_path / "log"
    log.write_bytes(text.encode())
    expected = text.replace("\r\n", "\n").split("\n")
    expected = expected[:-1] if expected[-1] == "" else expected
    assert last_lines(log, 9) == expected
    assert [line for _, line in numbered_lines(log)] == expected


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stream:
        stream.truncate(8 * 2**40)  # a hole of 8 TiB, which no reader gets through
        stream.seek(0, 2)
        stream.write(b"\nthe end\n")
    assert last_lines(log, 1) == ["the end"]


def test_lines_are_counted_as_editors_count_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes("a\u2028b\x0cc\rd\n\xff\n".encode("latin-1", "ignore") + b"\xff\n")
    numbers = [number for number, _ in numbered_lines(log)]
    assert numbers == list(itertools.islice(itertools.count(1), 3))


def write(log: Path, data: bytes) -> None:
    """Logs grow by these bytes; nothing is waited for."""
    with log.open("ab") as stream:
        stream.write(data)


def test_a_character_that_comes_in_two_writes_is_printed_once_and_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = [tmp_path / name for name in ("a.log", "b.log")]
    growing = GrowingLogs()
    for first, second in ((b"ma\xc3", b"na\xe2\x82"), (b"\xb1ana\n", b"\xac\n")):
        for log, data in zip(logs, (first, second), strict=True):
            write(log, data)
        growing.print_added(logs)
    printed = capsys.readouterr().out
    assert printed == "ma==> b.log <==\nna==> a.log <==\nñana\n==> b.log <==\n€\n"


def test_bytes_that_are_no_character_are_replaced_and_hold_nothing_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a.log"
    write(log, b"\xff fine\n")
    GrowingLogs().print_added([log])
    assert capsys.readouterr().out == "\N{REPLACEMENT CHARACTER} fine\n"


def test_a_log_that_did_not_grow_is_not_named_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    write(first, b"one\n")
    write(second, b"")
    growing = GrowingLogs()
    growing.print_added([first, second])
    growing.print_added([first, second])
    assert capsys.readouterr().out == "one\n"


def test_a_log_without_an_end_to_show_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = [tmp_path / name for name in ("a.log", "b.log", "c.log")]
    for log, data in zip(logs, (b"one\n", b"", b"two\n"), strict=True):
        write(log, data)
    GrowingLogs().print_ends(logs, 5)
    assert capsys.readouterr().out == "one\n==> c.log <==\ntwo\n"
