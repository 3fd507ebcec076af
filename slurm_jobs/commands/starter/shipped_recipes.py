"""Recipes that ship with slurm-jobs: their names, and the files that each needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.shipped_files import shipped_path, shipped_text
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.spec.yaml.reader import read_yaml

ALL = "all"
_HELPERS = {
    "guide": ("guide.py",),
    "guide_start": ("guide_start.py", "recipes.py", "shapes_demo.py"),
    "packing_chats": ("packing_chats.py", "recipes.py", "shapes_demo.py"),
    "recipes": ("recipes.py", "shapes_demo.py"),
    "recipes:models": ("recipes.py",),
    "shapes_demo": ("shapes_demo.py",),
}
"""Files of the modules that recipes import, or of a single function that needs fewer."""


def recipe_names() -> list[str]:
    """Return the names of all recipes, the demo first."""
    names = sorted(path.stem for path in shipped_path("configs").glob("*.yaml"))
    return sorted(names, key=lambda name: name != "demo")


def recipe_text(name: str) -> str:
    """Return the spec of a recipe, as it ships.

    Raises:
        InputError: there is none of that name.
    """
    names = recipe_names()
    if name not in names:
        known = ", ".join([*names, ALL])
        message = f"--recipe {name}: no such recipe{did_you_mean(name, names)} (recipes: {known})"
        raise InputError(message)
    return shipped_text("configs", f"{name}.yaml")


def stages_of(text: str) -> dict[str, Any]:
    """Return the stages in the text, without defaults."""
    stages: dict[str, Any] = read_yaml(text, "").value["stages"]
    return stages


def helper_files(text: str) -> dict[str, Path]:
    """Return the modules that the stages of a spec run, by the file name next to the spec."""
    runs = [str(stage.get("run", "")) for stage in stages_of(text).values()]
    modules = [run if run in _HELPERS else run.partition(":")[0] for run in runs if ":" in run]
    names = {file for module in modules for file in _HELPERS.get(module, ())}
    return {name: shipped_path("configs", name) for name in sorted(names)}
