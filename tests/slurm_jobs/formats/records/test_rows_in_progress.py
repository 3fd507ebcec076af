"""The record of rows in progress names the suspects of a process that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.cli.run_view.causes import read_reason
from slurm_jobs.formats.records.rows_in_progress import RowsInProgress, rows_in_progress, rows_path
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.status.slice_status import UNRECORDED, SliceStatus
from slurm_jobs.worker.launch import read_end
from slurm_jobs.worker.rank import exit_path

KILLED = """
import os, pathlib, signal, sys
from slurm_jobs.formats.records.rows_in_progress import RowsInProgress
rows = RowsInProgress(pathlib.Path(sys.argv[1]))
with rows.working_on("train.csv:1: done.jpg"):
    pass
with rows.working_on("train.csv:2: cat.jpg"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_the_row_that_it_worked_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert rows_in_progress(tmp_path) == "rows in progress: train.csv:2: cat.jpg"


def test_the_reason_of_a_killed_rank_names_its_rows(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    end = {"rank": 0, "node": "n0", "exit_code": 137, "signal": 9, "error": None}
    write_json_atomic(exit_path(tmp_path, 0), {**end, "stopped": False, "ended_unix_s": 1.0})
    reason = read_end(tmp_path, 1, [1]).reason
    assert reason == ("rank 0 on n0 was killed by SIGKILL; rows in progress: train.csv:2: cat.jpg")


def test_each_thread_has_a_slot_and_many_are_counted(tmp_path: Path) -> None:
    rows, all_begun = RowsInProgress(tmp_path), Barrier(7)

    def work(number: int) -> None:
        with rows.working_on(f"m.csv:{number}: {number}.jpg"):
            all_begun.wait()
            all_begun.wait()

    with ThreadPoolExecutor(6) as pool:
        done = [pool.submit(work, number) for number in range(6)]
        all_begun.wait()
        text = rows_in_progress(tmp_path)
        all_begun.wait()
        for future in done:
            future.result()
    names = ", ".join(f"m.csv:{number}: {number}.jpg" for number in range(4))
    assert text == f"rows in progress: {names} and 2 more"
    assert rows_in_progress(tmp_path) == ""


def test_nothing_is_left_by_a_task_that_ends_itself(tmp_path: Path) -> None:
    rows = RowsInProgress(tmp_path)
    with rows.working_on("m.csv:1: a.jpg"):
        pass
    rows.close()
    assert not rows_path(tmp_path).exists()
    assert rows_in_progress(tmp_path) == ""


@pytest.mark.parametrize("text", ["x" * 10_000_000, "\ud800" * 300, "ü" * 300])
def test_a_name_of_any_length_takes_one_slot(tmp_path: Path, text: str) -> None:
    rows = RowsInProgress(tmp_path)
    with rows.working_on(text):
        assert rows_path(tmp_path).stat().st_size == 256
        assert len(rows_in_progress(tmp_path)) < 300


@pytest.mark.parametrize("content", [b"", b"\xff" * 1000, os.urandom(5000), b"a" * 10_000_000])
def test_a_damaged_record_is_read_within_bounds(tmp_path: Path, content: bytes) -> None:
    rows_path(tmp_path).write_bytes(content)
    assert len(rows_in_progress(tmp_path)) < 1500


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    rows = RowsInProgress(tmp_path / "gone")
    with rows.working_on("m.csv:1: a.jpg"):
        pass
    rows.close()


def test_status_names_the_rows_where_the_supervisor_was_killed_too(tmp_path: Path) -> None:
    part = SliceStatus(
        slice_index=3,
        status="failed",
        source="sacct",
        state="OUT_OF_MEMORY",
        attempt=2,
        reason=f"OUT_OF_MEMORY {UNRECORDED}",
    )
    task_dir = RunPaths(tmp_path).task_dir("preprocess", 3, 2)
    task_dir.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", KILLED, str(task_dir)], check=False)
    assert read_reason(tmp_path, "preprocess", part).text == (
        f"OUT_OF_MEMORY {UNRECORDED}; rows in progress: train.csv:2: cat.jpg"
    )
