"""Check of the Pythons of built-in stages for the packages that these stages import.

No program is started, because a spec may come from another user: another Python's packages are
looked up in its folders.
"""

from __future__ import annotations

import importlib.util
import site
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.regular_files import open_regular, read_text
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.model import Stage
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.yaml.document import KeyPath, path_text, problem_at

NEEDED: Mapping[str, frozenset[str]] = {
    "download": frozenset({"huggingface_hub"}),
    "preprocess": frozenset({"PIL", "numpy", "pyarrow", "simplejpeg", "torch", "xxhash"}),
    "consolidate": frozenset({"numpy", "pyarrow", "xxhash"}),
    "train": frozenset(
        {
            *("PIL", "accelerate", "huggingface_hub", "numpy", "pyarrow", "safetensors"),
            *("simplejpeg", "torch", "transformers", "xxhash", "yaml"),
        }
    ),
    "report": frozenset({"numpy"}),
}
"""Modules that a built-in stage imports before it does anything, by the stage."""


def package_notes(loaded: LoadedSpec) -> list[str]:
    """Return notes on the Pythons of stages that lack what these stages import."""
    missing: dict[str, set[str]] = {}
    stages: dict[str, list[str]] = {}
    profile = loaded.profile or ClusterProfile()
    for name, stage in loaded.spec.stages.items():
        if _may_change(stage, loaded, profile):
            continue
        python = stage.python or profile.python or ""
        lacking = missing_modules(python, NEEDED.get(stage.run or "", frozenset()))
        if lacking:
            lacking |= missing_modules(python, _trackers(stage))
            missing.setdefault(python, set()).update(lacking)
            stages.setdefault(python, []).append(name)
    notes = []
    for python, modules in missing.items():
        program = python or sys.executable
        packages = "package" if len(modules) == 1 else "packages"
        notes.append(
            f"{program}, the Python of {' and '.join(stages[python])}, lacks the {packages} "
            f"{', '.join(sorted(modules))}: install slurm-jobs[train] there, or name the Python "
            "that has it as `python:`"
        )
    return notes


def tracker_problems(loaded: LoadedSpec) -> list[Problem]:
    """Return trackers whose package the Python of their training lacks.

    A Python that lacks more than that may not be the one that the jobs will have, so
    `package_notes` notes it.
    """
    problems = []
    profile = loaded.profile or ClusterProfile()
    for name, stage in loaded.spec.stages.items():
        if stage.run != "train" or _may_change(stage, loaded, profile):
            continue
        trackers = _trackers(stage)
        python = stage.python or profile.python or ""
        missing = missing_modules(python, trackers) if trackers else set()
        if missing and missing_modules(python, NEEDED["train"]):
            continue
        for tracker in sorted(missing):
            program = python or sys.executable
            path: KeyPath = ("stages", name, "config", "trackers", "use", trackers.index(tracker))
            message = (
                f"{path_text(path)}: {program}, the Python of stage `{name}`, lacks the package "
                f"{tracker}: type `{program} -m pip install {tracker}`, or remove the tracker"
            )
            problems.append(problem_at(loaded.document, path, message))
    return problems


def _trackers(stage: Stage) -> list[str]:
    trackers: list[str] = stage.config["trackers"]["use"] if stage.run == "train" else []
    return trackers


def _may_change(stage: Stage, loaded: LoadedSpec, profile: ClusterProfile) -> bool:
    """Check whether set-up, environment or a container may give the stage other packages."""
    options = {**profile.slurm, **profile.gpu_slurm, **stage.resources.slurm}
    environment = {**profile.environment, **loaded.spec.environment, **stage.environment}
    return (
        bool(stage.setup or loaded.spec.setup or profile.setup)
        or any(name.startswith("PYTHON") for name in environment)
        or any(option.startswith("container") for option in options)
    )


def missing_modules(python: str, modules: Collection[str]) -> set[str]:
    """Return which modules a Python certainly lacks; empty for a program that is no plain Python.

    Args:
        python: Path of the program; empty for the one that runs now.
        modules: Names of top-level modules.
    """
    if not python:
        return {name for name in modules if importlib.util.find_spec(name) is None}
    # A bare name is looked up in the job's PATH.
    folders = list(_package_folders(Path(python))) if "/" in python else []
    if not folders:
        return set()
    missing = set(modules)
    for folder in folders:
        missing -= {m for m in missing if (folder / m).is_dir() or any(folder.glob(f"{m}.*"))}
    return missing


def _package_folders(python: Path) -> Iterator[Path]:
    """Yield the folders of packages that a Python looks in; none if it cannot be known."""
    try:
        environment = python.parent.parent / "pyvenv.cfg"
        program = python.resolve(strict=True)
        with open_regular(program) as stream:
            is_script = stream.read(2) == b"#!"  # it may start anything
        if is_script or not program.name.startswith("python"):
            return
        if not environment.is_file():
            yield from _folders_below(program.parent.parent)
            if site.ENABLE_USER_SITE:
                yield from _folders_below(Path(site.getuserbase()))
            return
        folders = list(_folders_below(python.parent.parent))
        if _sees_system(read_text(environment)):
            folders += _folders_below(program.parent.parent)
    except (OSError, ValueError):  # it is not on this machine, or cannot be read
        return
    yield from folders


def _sees_system(settings: str) -> bool:
    """Check whether a virtual environment also uses the packages of its base."""
    values: dict[str, Any] = {}
    for line in settings.splitlines():
        key, _, value = line.partition("=")
        values[key.strip()] = value.strip().lower()
    return values.get("include-system-site-packages") == "true"


def _folders_below(prefix: Path) -> Iterator[Path]:
    for place in ("lib", "lib64", "local/lib"):
        for pattern in ("python3*/site-packages", "python3*/dist-packages"):
            for folder in sorted((prefix / place).glob(pattern)):
                yield folder
                yield from _linked(folder)


def _linked(folder: Path) -> Iterator[Path]:
    """Yield the folders that `.pth` files add, as for editable installs."""
    for file in sorted(folder.glob("*.pth")):
        for line in read_text(file, errors="replace").splitlines():
            path = folder / line.strip()
            if line.strip() and path.is_dir():
                yield path
