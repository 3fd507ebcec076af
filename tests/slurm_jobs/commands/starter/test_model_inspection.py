"""What `init` says of a model: a name on the hub, or a folder that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm_jobs.cli.command import command
from tests.slurm_jobs.cli.specs.begun import Init, answering, begin, images, init

__all__ = ["begin", "command", "init"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_model_on_the_hub_needs_one_module_which_the_spec_names(
    init: Init, tmp_path: Path
) -> None:
    images(tmp_path / "pics")
    said = init("specs", "--data", "pics", "--model", "Some/Model", "--yes").out
    assert "note: there is no folder Some/Model here, so it is taken as a name on the" in said
    assert said.startswith("jobs run on this machine, because of --local\n")
    spec = (tmp_path / "specs/finetune.yaml").read_text()
    assert sorted(path.name for path in (tmp_path / "specs").glob("*.py")) == ["recipes.py"]
    assert "add `source: FOLDER` to `config`" in spec
    assert "recipes.py next\n  # to this spec: keep that file" in spec
    assert "shapes_demo" not in spec


def test_a_model_that_may_be_meant_as_a_folder_is_noted(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images(tmp_path / "pics")
    answering(monkeypatch, "pics\nmodels/missing\n")
    assert "note: there is no folder models/missing here" in init("--name", "asked").out
