"""How attempts ended, in `status --stage`; squeue and sacct are programs of the test's own."""

from __future__ import annotations

import json
from pathlib import Path

from slurm_jobs.formats.records.attempt_records import Outcome
from slurm_jobs.run_folder.orders import name_of_job
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.tried_again import (
    NAME,
    began,
    ended,
    make,
    row,
    slurm,
    stopped_twice,
    submit_again,
)
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, queue_row

__all__ = ["slurm", "stopped_twice"]


def test_the_table_names_the_cause_of_each_end(command: Command, stopped_twice: RunPaths) -> None:
    lines = command("status", stopped_twice.run_dir, "--stage", "train", code=1).out.splitlines()
    place = lines.index("attempts of train")
    words = [line.split() for line in lines[place + 1 : place + 5]]
    assert words[0] == "attempt job node started ended ended by Slurm lost".split()  # noqa: SIM905
    assert [line[2] for line in words[1:]] == ["v1", "v2", "v3"]
    assert ["preempted" in words[1], "PREEMPTED" in words[1]] == [True, True]
    assert ["limit" in words[2], "REQUEUED" in words[2]] == [True, True]
    assert ["cancelled" in words[3], "CANCELLED" in words[3]] == [True, True]
    assert lines[place + 5 : place + 9] == [
        "attempt 1: Slurm gave its nodes to a job of higher priority; it stopped in time",
        "attempt 2: its time limit came near; it stopped in time",
        (
            "attempt 3: cancelled by scancel, an administrator or Slurm itself; it was killed "
            "before it could record its end"
        ),
        "lost: 1 min 50 s of 6 min 40 s (28 %): repeated work 90.0 s, requeue wait 20.0 s",
    ]


def test_status_alone_names_the_command_that_explains(
    command: Command, stopped_twice: RunPaths
) -> None:
    out = command("status", stopped_twice.run_dir, code=1).out
    assert "tried again: train; how each attempt ended:" in out
    assert f"{stopped_twice.run_dir} --stage train" in out
    assert "attempts of" not in out


def test_json_has_each_attempt_with_its_kind_times_and_losses(
    command: Command, stopped_twice: RunPaths
) -> None:
    out = command("status", stopped_twice.run_dir, "--stage", "train", "--json", code=1).out
    (stage,) = json.loads(out)["stages"]
    assert [(a["ending"], a["state"], a["lost_s"]) for a in stage["attempts"]] == [
        ("preempted", "PREEMPTED", None),
        ("time limit", "REQUEUED", None),
        ("cancelled", "CANCELLED", 90.0),
    ]
    assert [(a["start_unix_s"], a["end_unix_s"]) for a in stage["attempts"]] == [
        (2000.0, 2060.0), (2070.0, 2300.0), (2310.0, 2400.0),
    ]  # fmt: skip


def test_of_an_array_only_slices_that_need_an_explanation_are_shown(
    tmp_path: Path, slurm: FakeSlurm, command: Command
) -> None:
    paths = make(tmp_path, 100)
    rows = []
    for index in range(100):
        began(paths, 1, 2000.0, index=index, job=f"7_{index}")
        has_failed = index >= 70
        outcome: Outcome = "failed" if has_failed else "completed"
        ended(paths, 1, 2030.0, outcome, index=index, reason="ValueError: x" if has_failed else "")
        rows.append(row("FAILED" if has_failed else "COMPLETED", 1999, 2031, f"7_{index}"))
    slurm.says("sacct", "".join(rows))
    out = command("status", paths.run_dir, "--stage", "train", code=1).out
    assert "slices 70-89: ValueError: x" in out
    assert "and 10 slices more; --json has all" in out
    values = json.loads(command("status", paths.run_dir, "--stage", "train", "--json", code=1).out)
    assert len(values["stages"][0]["attempts"]) == 30


def test_a_stage_without_trouble_says_so_and_an_unknown_one_is_refused(
    tmp_path: Path, slurm: FakeSlurm, command: Command
) -> None:
    paths = make(tmp_path, 1)
    began(paths, 1, 2000.0)
    ended(paths, 1, 2030.0, "completed")
    out = command("status", paths.run_dir, "--stage", "train", code=0).out
    assert "no slice of train was tried again, failed or was cancelled" in out
    assert "tran" in command("status", paths.run_dir, "--stage", "tran", code=2).err


def test_a_job_that_waits_for_its_second_start_is_explained_at_once(
    tmp_path: Path, slurm: FakeSlurm, command: Command
) -> None:
    paths = make(tmp_path, 1)
    began(paths, 1, 2000.0)
    slurm.says("squeue", queue_row("7", "PENDING", "BeginTime", name=NAME))
    slurm.says("sacct", row("NODE_FAIL", 1999, 2031))
    assert "tried again: train;" in command("status", paths.run_dir, code=0).out
    out = command("status", paths.run_dir, "--stage", "train", code=0).out
    assert "attempt 1: its node failed, or was taken down; it was killed before" in out


def test_a_job_without_any_record_stays_in_the_table_after_a_resume(
    tmp_path: Path, slurm: FakeSlurm, command: Command
) -> None:
    paths = make(tmp_path, 1)
    submit_again(paths, "u", "8")
    began(paths, 1, 2100.0, job="8", token="u")
    ended(paths, 1, 2130.0, "completed", token="u")
    first, second = row("FAILED", 1999, 2002), row("COMPLETED", 2099, 2131, "8")
    slurm.says("sacct", first + second.replace(NAME, name_of_job("r", "train", "u")))
    out = command("status", paths.run_dir, "--stage", "train", code=0).out
    assert "job 7: FAILED before its supervisor started" in out
