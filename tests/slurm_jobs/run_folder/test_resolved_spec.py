"""A run's spec that is forged, or of another version: one error names it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.golden.command import fixed_surroundings
from tests.golden.stored_runs import unpack
from tests.slurm_jobs.cli.command import Command, command
from tests.slurm_jobs.cli.edited_records import HUGE, edit
from tests.slurm_jobs.cli.test_planted_files import ANOTHER, words_of

__all__ = ["command"]


def specified_in_a_circle(stages: Any) -> None:
    first, second = list(stages)[:2]
    stages[first]["after"], stages[second]["after"] = {second: "afterok"}, {first: "afterok"}


SPECS: dict[str, tuple[Callable[[Any], object], str]] = {
    "circle": (specified_in_a_circle, "render before preprocess before render"),
    "itself": (
        lambda stages: stages["render"].update(after={"render": "afterok"}),
        "render before render",
    ),
    "no parent": (
        lambda stages: stages["render"].update(after={"nosuch": "afterok"}),
        "'render' comes after 'nosuch'",
    ),
    "removed parent": (lambda stages: stages.pop("render"), "'preprocess' comes after 'render'"),
    "list": (
        lambda stages: stages["preprocess"].update(after=["render"]),
        "its stage 'preprocess' has no mapping as its `after`",
    ),
    "number": (lambda stages: stages.update(render=5), "its stage 'render' is no mapping"),
    "array": (
        lambda stages: stages["render"].update(array=[3]),
        "its stage 'render' has no mapping as its `array`",
    ),
    "slices": (
        lambda stages: stages["render"].update(array={"num_slices": HUGE}),
        "as `num_slices` of its `array`",
    ),
    "config": (
        lambda stages: stages["train"].update(config="x"),
        "its stage 'train' has no mapping as its `config`",
    ),
}


@pytest.mark.parametrize("attack", SPECS)
def test_a_forged_spec_ends_each_command_that_needs_it_with_one_error(
    attack: str, command: Command, tmp_path: Path
) -> None:
    run_dir = unpack("finished", tmp_path / "one")
    shutil.copytree(run_dir, run_dir.with_name(ANOTHER))
    forge, message = SPECS[attack]
    edit(run_dir / "spec" / "resolved.json", lambda spec: forge(spec["stages"]))
    with fixed_surroundings(tmp_path):
        for words in words_of(run_dir):
            ended = command(*words)
            assert "Traceback" not in ended.out + ended.err
            if words[0] in {"report", "resume"}:
                assert ended.code == 3
                assert f"{run_dir / 'spec' / 'resolved.json'} is damaged (" in ended.err
                assert message in ended.err
                assert "restore the file" in ended.err
            elif words[0] != "compare":  # refuses the copy of a run
                assert ended.code == 0


def test_a_spec_of_another_version_is_named_with_its_key(command: Command, tmp_path: Path) -> None:
    run_dir = unpack("finished", tmp_path / "one")
    edit(run_dir / "spec" / "resolved.json", lambda spec: spec.update(newer_key=1))
    with fixed_surroundings(tmp_path):
        ended = command("resume", run_dir, "--dry-run")
    assert ended.code == 3
    assert "spec/resolved.json is not a spec that this version of slurm-jobs can" in ended.err
    assert "newer_key" in ended.err
