"""Packages of a Python, by the names of their metadata folders."""

import importlib.metadata
import sys
from pathlib import Path

from slurm_jobs.base.python_packages import installed_packages, normalized


def test_the_packages_are_those_that_importlib_metadata_finds() -> None:
    known = {normalized(d.name): d.version for d in reversed([*importlib.metadata.distributions()])}
    assert "pytest" in known
    assert installed_packages(sys.path) == known


def test_names_of_every_form_are_understood_and_the_first_folder_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for folder, name in (
        (first, "Ruamel.YAML-0.18.6.dist-info"),
        (first, "torch-2.13.0+cu126.dist-info"),
        (first, "old_style-1.2-py3.11.egg-info"),
        (first, "no_version.egg-info"),
        (first, "torch"),
        (second, "torch-1.0.dist-info"),
        (second, "a-b-3.dist-info"),
    ):
        (folder / name).mkdir(parents=True)
    folders = [str(tmp_path / "missing"), str(first), str(second)]
    assert installed_packages(folders) == {
        "a-b": "3",
        "old-style": "1.2",
        "ruamel-yaml": "0.18.6",
        "torch": "2.13.0+cu126",
    }
