"""Which logs of a run the options of `logs` select, and why there are none."""

from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.run_logs.logged_runs import Logs, begin, causes, log, logs, paths, sweep
from tests.slurm_jobs.run.fabricate import end, make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm

__all__ = ["causes", "logs", "paths", "sweep"]


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A squeue and a sacct that know no job, so that records alone speak."""
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


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


def test_a_slice_is_searched_in_the_stages_that_have_it(causes: RunPaths, logs: Logs) -> None:
    assert logs(causes, "--slice", "3", "--tail", "1") == (
        ["==> preprocess/s00003.a0001.rank-00000.log <==", "end 3"],
        "",
    )


def test_logs_that_clean_removed_are_said_to_be_removed(ended: RunPaths, command: Command) -> None:
    command("clean", ended.run_dir, "--keep", "report", "--yes", code=0)
    told = command("logs", ended.run_dir, "train").err.splitlines()
    assert told[0] == "no log of `train`: it is complete"
    assert told[1].startswith("this run was cleaned, last on ")
