"""Check that the functions that a spec names exist in the user's modules; runs nothing. PURE."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import Problem, did_you_mean
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.graph import StageView
from slurm_jobs.spec.validation import problem_at
from slurm_jobs.spec.yaml_values import YamlDocument


def entry_point_problems(
    views: Mapping[str, StageView],
    document: YamlDocument,
    spec_dir: str,
    read_text: Callable[[str], str],
) -> list[Problem]:
    """Return functions that a module next to the spec lacks, and modules with syntax errors.

    A module elsewhere belongs to the stage's Python and is not read.
    """
    problems = []
    for name, view in views.items():
        module, colon, function = (view.run or "").partition(":")
        if not colon:
            continue
        message = _message(module, function, spec_dir, read_text)
        if message is not None:
            place = ("stages", name, "run")
            problems.append(problem_at(document, place, f"stages.{name}.run: {message}"))
    return problems


def module_problems(
    views: Mapping[str, StageView],
    document: YamlDocument,
    spec_dir: str,
    files: Files,
    profile: ClusterProfile | None,
) -> list[Problem]:
    """Return modules that do not exist, if a module with a similar name is next to the spec.

    Only for stages that run in this Python with its module path unchanged.
    """
    problems = []
    beside = modules_of_spec(document.value, spec_dir, files)
    for name, view in views.items():
        module, colon, _ = (view.run or "").partition(":")
        module = module.partition(".")[0]
        near = did_you_mean(module, beside) if colon and module not in beside else ""
        if not near or _looks_elsewhere(view, document.value, profile) or files.has_module(module):
            continue
        message = (
            f"stages.{name}.run: there is no module `{module}` next to the spec or in this "
            f"Python{near}"
        )
        problems.append(problem_at(document, ("stages", name, "run"), message))
    return problems


def modules_of_spec(values: Any, spec_dir: str, files: Files) -> frozenset[str]:
    """Return the modules that a run's snapshot can hold: next to the spec, and under `code:`."""
    code = values.get("code") if isinstance(values, dict) else None
    given = code if isinstance(code, list) else []  # other values are reported elsewhere
    listed = [PurePosixPath(path) for path in given if isinstance(path, str)]
    own = {path.stem for path in listed if path.suffix in {"", ".py"}}
    return frozenset({*files.modules_in(spec_dir), *own})


def _looks_elsewhere(view: StageView, values: Any, profile: ClusterProfile | None) -> bool:
    """Check whether the stage runs in another Python, or set-up or environment may add modules."""
    given: list[Mapping[str, Any]] = [view.keys, values]
    if profile is not None:
        given.append(profile.model_dump())
    return any(
        keys.get("python") or keys.get("setup") or _sets_module_path(keys.get("environment"))
        for keys in given
    )


def _sets_module_path(environment: Any) -> bool:
    return isinstance(environment, Mapping) and "PYTHONPATH" in environment


def _message(
    module: str, function: str, spec_dir: str, read_text: Callable[[str], str]
) -> str | None:
    stem = PurePosixPath(spec_dir, *module.split("."))
    for file in (f"{stem}.py", f"{stem}/__init__.py"):
        try:
            # Python accepts a byte order mark at the start of a module.
            tree = ast.parse(read_text(file).removeprefix("\ufeff"), file)
        except (OSError, UnicodeDecodeError):
            continue
        except (SyntaxError, ValueError) as error:
            return f"{file} is no valid Python: {error}"
        names = _names(tree)
        if names is None or function in names:
            return None
        return f"{file} defines no `{function}`{did_you_mean(function, names)}"
    return None


def _names(tree: ast.Module) -> set[str] | None:
    """Return the names that a module defines or imports at top level; None if unknown."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            if any(alias.name == "*" for alias in node.names):
                return None
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
