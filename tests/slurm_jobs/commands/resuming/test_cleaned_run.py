"""A resume of a run that was cleaned: a stored one, which is complete."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.golden.stored_runs import unpack
from tests.slurm_jobs.cli.command import Command, command

__all__ = ["command"]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return unpack("finished", tmp_path / "stored")


def planned(command: Command, run_dir: Path, *words: str) -> Any:
    return json.loads(command("resume", run_dir, "--dry-run", "--json", *words).result)


def test_parts_that_were_consolidated_are_not_made_again(command: Command, run_dir: Path) -> None:
    assert planned(command, run_dir)["jobs"] == []
    command("clean", run_dir, "--yes", code=0)
    assert not (run_dir / "data/preprocess").exists()
    resumed = planned(command, run_dir)
    assert resumed["jobs"] == []
    assert "removed were: parts of preprocess" in resumed["notes"][0]
    assert "removed were: parts of preprocess" in command("status", run_dir).result


def test_a_stage_that_reads_what_was_removed_does_not_run_again_unseen(
    command: Command, run_dir: Path
) -> None:
    command("clean", run_dir, "--yes", code=0)
    refused = command("resume", run_dir, "--dry-run", "--again", "consolidate", code=2)
    assert "`consolidate` would run again, and reads the output of `preprocess`" in refused.err
    refused = command("resume", run_dir, "--dry-run", "--again", "preprocess:1", code=2)
    assert "add `--again preprocess`" in refused.err  # slice 0 has no part either
    jobs = planned(command, run_dir, "--again", "preprocess")["jobs"]
    again = [(job["stage"], job["slices"]) for job in jobs]
    assert again[:2] == [("preprocess", "0-1"), ("consolidate", "0")]
    jobs = planned(command, run_dir, "--again", "train")["jobs"]  # its data set is there
    assert [job["stage"] for job in jobs] == ["train", "report"]


def test_the_first_of_several_stages_whose_output_was_removed_is_named(
    command: Command, run_dir: Path
) -> None:
    command("clean", run_dir, "--keep", "report", "--yes", code=0)
    refused = command("resume", run_dir, "--dry-run", "--again", "train", code=2).err
    assert "reads the output of `consolidate`, whose data `clean` removed" in refused
    assert "reads the output of `preprocess`, whose parts `clean` removed" in refused
    (option,) = re.findall("add `--again ([a-z]+)`", refused)
    jobs = planned(command, run_dir, "--again", option)["jobs"]
    assert [job["stage"] for job in jobs][-2:] == ["train", "report"]


def test_verify_offers_to_make_again_what_clean_removed(command: Command, run_dir: Path) -> None:
    command("clean", run_dir, "--keep", "report", "--yes", code=0)
    (verdict,) = json.loads(command("verify", run_dir, "--json", code=1).out)["datasets"]
    assert verdict["remedy"].endswith("--again consolidate")
    assert "`clean` removed it" in verdict["effect"]


def test_compare_says_that_clean_removed_what_it_compares(command: Command, run_dir: Path) -> None:
    other = unpack("starved-on-slurm", run_dir.parent / "other")
    command("clean", run_dir, "--keep", "report", "--yes", code=0)
    error = command("compare", run_dir, other, code=2).err
    assert "to compare: this run was cleaned" in error


def test_a_file_that_clean_did_not_remove_is_still_missed(command: Command, run_dir: Path) -> None:
    command("clean", run_dir, "--yes", code=0)
    (run_dir / "data/consolidate/index.arrow").unlink()
    refused = command("resume", run_dir, "--dry-run", code=2)
    assert "`consolidate` would run again" in refused.err


def test_a_run_that_is_half_removed_is_not_resumed(command: Command, run_dir: Path) -> None:
    cleaning = {"begun_unix_s": 1.0, "ended_unix_s": None, "is_whole": True, "removed": []}
    (run_dir / "cleaned.json").write_text(json.dumps({"cleanings": [cleaning]}))
    refused = command("resume", run_dir, code=2)
    assert f"`slurm-jobs clean {run_dir}` finishes it" in refused.err
