"""Runs with logs, and the lines that `logs` prints of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.records.attempt_records import AttemptRecord
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.run.fabricate import end, make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, queue_row

Logs = Callable[..., tuple[list[str], str]]


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
def causes(paths: RunPaths, slurm: FakeSlurm) -> RunPaths:
    """Two causes in an array of four, another stage that failed, and one that runs."""
    for index, reason in ((1, "it broke"), (2, "it melted"), (3, "it broke")):
        end(paths, "preprocess", [index], "failed", reason=reason, failed_rank=int(index == 1))
    submit(paths, "train", 1, "13")
    begin(paths, "train", 0, 1, "13")
    slurm.says("squeue", queue_row("13", "RUNNING"))
    log(paths, "train", text="epoch 1\n")
    return paths
