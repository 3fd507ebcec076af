"""How attempts ended, in `status --stage`; squeue and sacct are programs of the test's own."""

from __future__ import annotations

import json
from pathlib import Path

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.tried_again import began, ended, make, slurm, stopped_twice
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm

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
    assert "tried again: train. To see how each attempt ended:" in out
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


def test_a_stage_without_trouble_says_so_and_an_unknown_one_is_refused(
    tmp_path: Path, slurm: FakeSlurm, command: Command
) -> None:
    paths = make(tmp_path, 1)
    began(paths, 1, 2000.0)
    ended(paths, 1, 2030.0, "completed")
    out = command("status", paths.run_dir, "--stage", "train", code=0).out
    assert "no slice of train was tried again, failed or was cancelled" in out
    assert "tran" in command("status", paths.run_dir, "--stage", "tran", code=2).err
