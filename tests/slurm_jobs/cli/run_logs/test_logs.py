"""What `logs` prints. The run folders are whole; Slurm's programs are the tests' own."""

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.cli.run_logs import log_files
from slurm_jobs.cli.run_logs.log_files import last_lines, numbered_lines
from slurm_jobs.cli.terminal.shown_paths import command_text
from slurm_jobs.formats.records.attempt_records import AttemptRecord
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.run.fabricate import end, make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import (
    FakeSlurm,
    account_row,
    make_fake_slurm,
    queue_row,
)

Logs = Callable[..., tuple[list[str], str]]


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A squeue and a sacct that know no job, so that records alone speak."""
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


@pytest.fixture
def logs(command: Command, request: pytest.FixtureRequest) -> Logs:
    """The lines that `logs` prints of a run, or of a fixture's, and its errors."""

    def run(paths: RunPaths | str, *words: str, code: int = 0) -> tuple[list[str], str]:
        if isinstance(paths, str):
            paths = request.getfixturevalue(paths)
        ended = command("logs", paths.run_dir, *words, code=code)
        return ended.out.splitlines(), ended.err

    return run


def log(paths: RunPaths, stage: str, slice_index: int = 0, *, text: str, rank: int = 0) -> None:
    """Write the log of the first attempt of a rank."""
    paths.logs_dir(stage).mkdir(parents=True, exist_ok=True)
    paths.rank_log(stage, slice_index, 1, rank).write_text(text)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """An array of four of which slices 1 and 3 failed; slice 1 has a rank more."""
    paths = make_run(tmp_path / "r", {"preprocess": 4, "train": 1})
    submit(paths, "preprocess", 4, "12")
    end(paths, "preprocess", [0, 2])
    end(paths, "preprocess", [1, 3], "failed", reason="it broke")
    for index in range(4):
        text = f"begin {index}\n" + "row\n" * 30 + f"disk quota of {index} exceeded\nend {index}\n"
        log(paths, "preprocess", index, text=text)
        paths.job_log("preprocess", f"12_{index}").write_text(f"supervisor of {index}\n")
    log(paths, "preprocess", 1, text="the other rank\n", rank=1)
    return paths


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
    log(paths, "fit-1", text="one\n")
    return paths


@pytest.fixture
def ended(tmp_path: Path) -> RunPaths:
    """A complete run of which `train` has printed something last, and `report` nothing."""
    paths = make_run(tmp_path / "e", {"preprocess": 2, "train": 1, "report": 1})
    for stage, number, job_id in (("preprocess", 2, "12"), ("train", 1, "13"), ("report", 1, "14")):
        submit(paths, stage, number, job_id)
        end(paths, stage, range(number))
        for index in range(number):
            log(paths, stage, index, text="" if stage == "report" else f"said by {stage}\n")
    return paths


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


def quota(index: int) -> str:
    return f"s0000{index}.a0001.rank-00000.log:32:disk quota of {index} exceeded"


TWO_TASKS = [
    *("==> slurm-12_0.log <==", "job 12_0, attempt 1"),
    *("==> slurm-12_1.log <==", "job 12_1, attempt 1", "job 12_1, attempt 2"),
]


@pytest.mark.parametrize(
    ("run", "words", "printed"),
    [
        ("paths", r"preprocess --grep quota\sof\s\d", [quota(index) for index in range(4)]),
        ("paths", "preprocess --grep quota --failed", [quota(1), quota(3)]),
        ("paths", "preprocess --grep quota --slice 2", [quota(2)]),
        ("paths", "preprocess --grep quota --slice 1 --rank 0", [quota(1)]),
        ("paths", "preprocess --grep quota --attempt 1 --slice 0", [quota(0)]),
        ("paths", "preprocess --grep quota --tail 2 --slice 0", [quota(0)]),
        ("paths", r"preprocess --grep of\s3 --supervisor", ["slurm-12_3.log:1:supervisor of 3"]),
        # without a stage those that have the slice are searched
        ("paths", "--grep quota --slice 3", [f"preprocess/{quota(3)}"]),
        # a job and an array of two, each submitted twice
        ("attempts", "train --supervisor", ["job 13, attempt 2"]),
        ("attempts", "train --supervisor --attempt 2", ["job 13, attempt 2"]),
        ("attempts", "train --supervisor --attempt 1", ["job 11, attempt 1"]),
        (
            *("attempts", "train --supervisor --attempt 1 --grep attempt"),
            ["slurm-11.log:1:job 11, attempt 1"],
        ),
        ("attempts", "preprocess --supervisor --attempt 1", TWO_TASKS),
        (
            *("attempts", "preprocess --supervisor --attempt 2"),
            ["==> slurm-14_0.log <==", "job 14_0, attempt 2", *TWO_TASKS[2:]],
        ),
        ("attempts", "preprocess --supervisor --attempt 3 --slice 1", ["job 14_1, attempt 3"]),
        # the last stage that has printed something
        ("ended", "", ["==> train/s00000.a0001.rank-00000.log <==", "said by train"]),
        # one combination of a matrix, and all of which one has a log
        ("sweep", "fit-1", ["one"]),
        ("sweep", "fit", ["==> fit-1/s00000.a0001.rank-00000.log <==", "one"]),
    ],
)
def test_the_logs_that_are_chosen_are_printed(
    logs: Logs, run: str, words: str, printed: list[str]
) -> None:
    assert logs(run, *words.split()) == (printed, "")


@pytest.mark.parametrize(
    ("run", "words", "code", "said"),
    [
        # as grep does
        ("paths", "preprocess --grep nowhere", 1, ""),
        ("paths", r"preprocess --failed --grep begin\s2", 1, ""),
        ("sweep", "--grep nowhere", 1, ""),
        ("paths", "--grep quota --slice 4", 2, "`preprocess` has the slices 0 to 3"),
        ("paths", "preprocess --grep quota\\s(of", 2, "missing )"),
        ("paths", "preprocess --follow --grep x", 2, ""),
        ("paths", "preprocess --tail -1", 2, ""),
        ("paths", "train --failed", 0, "no slice of `train` failed"),
        ("paths", "preprocess --slice 2 --failed", 0, "no slice 2 of `preprocess` failed"),
        ("paths", "train --failed --follow", 0, "no slice of `train` failed"),
        ("sweep", "z --follow", 0, "no log of `z`: it is complete"),
        ("paths", "train --rank 0", 0, "no log of `train`: it is stranded (not submitted"),
        ("paths", "preprocess --rank 7", 2, "`preprocess` has no log of that rank or attempt"),
        ("attempts", "preprocess --supervisor --attempt 4", 2, "`preprocess` has no log of that"),
        ("sweep", "fitt", 2, "no stage `fitt`; did you mean `fit`?"),
    ],
)
def test_where_no_log_is_chosen_the_reason_is_printed(
    logs: Logs, run: str, words: str, code: int, said: str
) -> None:
    lines, errors = logs(run, *words.split(), code=code)
    assert lines == []
    assert said in errors


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


def test_grep_for_an_attempt_that_no_stage_has_names_every_stage(
    tmp_path: Path, logs: Logs
) -> None:
    paths = make_run(tmp_path / "many", {"clean": 1, "train": 1, "later": 1})
    for number, name in enumerate(("clean", "train"), start=1):
        submit(paths, name, 1, str(number))
        log(paths, name, text="epoch 1\n")
    _, said = logs(paths, "--grep", "epoch", "--attempt", "7", code=2)
    assert "no log of `later`: it is stranded" in said
    assert "none of `clean`, `train` has a log of that rank or attempt; there is" in said
    _, said = logs(paths, "train", "--grep", "epoch", "--attempt", "7", code=2)
    assert "`train` has no log of that rank or attempt; there is" in said


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


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--grep", "x"), 1)])
def test_failed_logs_of_a_run_without_failures_name_the_run(
    sweep: RunPaths, logs: Logs, words: tuple[str, ...], code: int
) -> None:
    said = f"no slice of {sweep.run_dir.name} failed\n"
    assert logs(sweep, "--failed", *words, code=code) == ([], said)


def test_empty_logs_are_called_so(ended: RunPaths, logs: Logs) -> None:
    log(ended, "preprocess", 0, text="")
    head = "==> s0000{}.a0001.rank-00000.log <=={}"
    said = [head.format(0, " (empty)"), head.format(1, ""), "said by preprocess"]
    assert logs(ended, "preprocess") == (said, "")
    log(ended, "preprocess", 1, text="")
    log(ended, "train", text="")
    assert logs(ended) == ([], "the log of `report` is empty\n")
    assert logs(ended, "preprocess") == ([], "the logs of `preprocess` are empty\n")


def test_a_misspelt_stage_of_the_newest_run_is_answered_with_the_nearest(
    sweep: RunPaths, command: Command
) -> None:
    assert "(fit-1, fit-2, z); did you mean `fit`?" in command("logs", "fitt").err


def test_a_matrix_stages_own_name_means_the_logs_of_all_its_combinations(
    sweep: RunPaths, logs: Logs, command: Command
) -> None:
    log(sweep, "fit-2", text="two\n")
    heads = [f"==> fit-{number}/s00000.a0001.rank-00000.log <==" for number in (1, 2)]
    whole = [heads[0], "one", heads[1], "two"]
    assert logs(sweep, "fit") == logs(sweep, "fit", "--follow") == (whole, "")
    assert command("logs", "fit", "--tail", "1").result.splitlines() == whole
    assert logs(sweep, "fit", "--grep", "w")[0] == ["fit-2/s00000.a0001.rank-00000.log:1:two"]


def test_an_attempt_without_a_rank_log_gets_its_supervisors_log_printed(
    attempts: RunPaths, logs: Logs
) -> None:
    first = ["job 11, attempt 1"]
    assert logs(attempts, "train", "--attempt", "1")[0] == first
    attempts.rank_log("train", 0, 2, 0).write_text("the rank\n")
    assert logs(attempts, "train", "--attempt", "1")[0] == first
    assert logs(attempts, "train", "--attempt", "2")[0] == ["the rank"]
    _, said = logs(attempts, "train", "--attempt", "3", code=2)
    assert "`train` has no log of that rank or attempt" in said


def test_an_unknown_attempt_or_rank_is_refused_with_those_that_exist(
    attempts: RunPaths, logs: Logs
) -> None:
    attempts.rank_log("train", 0, 2, 0).write_text("the rank\n")
    attempts.rank_log("train", 0, 2, 1).write_text("another rank\n")
    for words in ("--attempt 0", "--attempt -1", "--rank -1", "--rank 7"):
        _, said = logs(attempts, "train", *words.split(), code=2)
        assert "there is attempt 1-2, rank 0-1" in said


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


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("num_lines", [0, 1, 2, 5, 99])
def test_the_last_lines_are_those_at_the_end_wherever_blocks_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_lines: int, ending: str
) -> None:
    monkeypatch.setattr(log_files, "_BLOCK_BYTES", 7)
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


@pytest.fixture
def causes(paths: RunPaths, slurm: FakeSlurm) -> RunPaths:
    """Two causes in an array of four, another stage that failed, and one that runs."""
    for index, reason in ((1, "it broke"), (2, "it melted"), (3, "it broke")):
        end(paths, "preprocess", [index], "failed", reason=reason, failed_rank=int(index == 1))
    submit(paths, "train", 1, "13")
    begin(paths, "train", 0, 1, "13")
    slurm.says("squeue", queue_row("13", "RUNNING"))
    log(paths, "train", text="epoch 1\n")
    return paths


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


def test_a_slice_is_searched_in_the_stages_that_have_it(causes: RunPaths, logs: Logs) -> None:
    assert logs(causes, "--slice", "3", "--tail", "1") == (
        ["==> preprocess/s00003.a0001.rank-00000.log <==", "end 3"],
        "",
    )
