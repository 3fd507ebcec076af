"""Spec text -> a spec that can be planned, or every problem in one pass. PURE.

Reading files and looking for them is passed in, so that the same code serves
the command line, the tests and a notebook.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from slurm_jobs.cluster.profile import LOCAL, ClusterProfile
from slurm_jobs.common.config_values import ModelMarker
from slurm_jobs.common.errors import Problem, SpecError
from slurm_jobs.spec.graph import StageView, graph_problems, stage_views
from slurm_jobs.spec.markers import MarkedString, absolute, resolve_marked
from slurm_jobs.spec.model import BUILTIN_STAGES, RunSpec
from slurm_jobs.spec.overrides import apply_overrides
from slurm_jobs.spec.stage_checks import stage_problems
from slurm_jobs.spec.stage_configs import config_class
from slurm_jobs.spec.validation import did_you_mean, path_text, problem_at, validate_values
from slurm_jobs.spec.yaml_values import Path, YamlDocument, read_yaml

SPECIAL_CLUSTERS = ("auto", "local")


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """How the loader looks at the file system."""

    read_text: Callable[[str], str]
    """Text of a file; raises OSError or UnicodeDecodeError."""
    exists: Callable[[str], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedSpec:
    """A spec without problems, and what it was made from."""

    spec: RunSpec
    """Paths absolute, built-in stages' configs complete with their defaults."""
    profile: ClusterProfile | None
    """None for `cluster: auto`, which Slurm must be asked about."""
    text: str
    file: str
    spec_dir: str
    overrides: tuple[str, ...]


def load_spec(
    file: str, files: Files, *, overrides: Sequence[str] = (), limit: int | None = None
) -> LoadedSpec:
    """Read, check and complete the spec in `file` (an absolute path).

    Raises:
        SpecError: with every problem found.
    """
    text = _read(file, file, files)
    all_overrides = [*overrides, *([f"limit={limit}"] if limit is not None else [])]
    document = apply_overrides(read_yaml(text, file), all_overrides)
    if document.value is None and not document.problems:
        raise SpecError([Problem(file=file, line=1, column=1, message="the file is empty")])
    if document.value is None:
        raise SpecError(list(document.problems))
    spec, problems = validate_values(RunSpec, document, document.value, ())
    views = stage_views(document.value)
    configs, more = _validate_configs(views, document)
    problems = [*document.problems, *problems, *graph_problems(views, document), *more]
    if spec is None:
        raise SpecError(_sorted(problems))
    spec_dir = str(PurePosixPath(file).parent)
    spec, more = _complete(spec, configs, document, spec_dir, files)
    problems += more
    profile, more = _load_profile(spec, document, spec_dir, files)
    problems += more
    if problems:
        raise SpecError(_sorted(problems))
    return LoadedSpec(
        spec=spec,
        profile=profile,
        text=text,
        file=file,
        spec_dir=spec_dir,
        overrides=tuple(all_overrides),
    )


def _sorted(problems: list[Problem]) -> list[Problem]:
    unique = dict.fromkeys(problems)
    return sorted(unique, key=lambda p: (p.file, p.line, p.column))


def _read(file: str, shown: str, files: Files) -> str:
    try:
        return files.read_text(file)
    except FileNotFoundError:
        message = "no such file"
    except UnicodeDecodeError:
        message = "not a text file (it is not UTF-8)"
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
    raise SpecError([Problem(file=shown, line=0, column=0, message=message)])


def _validate_configs(
    views: Mapping[str, StageView], document: YamlDocument
) -> tuple[dict[str, Any], list[Problem]]:
    """Configs of the built-in stages, of those without problems, and the problems."""
    configs: dict[str, Any] = {}
    problems = []
    for name, view in views.items():
        if view.run in BUILTIN_STAGES:
            target = config_class(view.run)
            path: Path = ("stages", name, "config")
            config, found = validate_values(target, document, view.config, path)
            problems += found
            if config is not None:
                configs[name] = config
    return configs, problems


def _complete(
    spec: RunSpec, configs: Mapping[str, Any], document: YamlDocument, spec_dir: str, files: Files
) -> tuple[RunSpec, list[Problem]]:
    """Absolute paths and complete configs; what stages and resources must agree on."""
    problems: list[Problem] = []
    values = spec.model_dump(mode="json")
    values, marked = resolve_marked(RunSpec, values, base_dir=spec_dir, exists=files.exists)
    for name, config in configs.items():
        plain, more = resolve_marked(
            type(config),
            dataclasses.asdict(config),
            base_dir=spec_dir,
            exists=files.exists,
            path=("stages", name, "config"),
        )
        values["stages"][name]["config"] = plain
        marked += more
        problems += stage_problems(name, spec.stages[name], config, document)
    problems += _missing_files(marked, document, files)
    return RunSpec.model_validate_json(_json(values), strict=True), problems


def _json(values: Mapping[str, Any]) -> str:
    import json

    return json.dumps(values)


def _missing_files(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    problems = []
    for item in marked:
        if "$" in item.resolved or item.resolved.startswith("~"):
            continue
        missing = not files.exists(item.resolved)
        if isinstance(item.marker, ModelMarker):
            if missing and item.resolved.startswith("/"):
                message = f"{path_text(item.path)}: no model folder at {item.resolved}"
                problems.append(problem_at(document, item.path, message))
        elif item.marker.must_exist and missing:
            shown = "" if item.given == item.resolved else f" (`{item.given}`, relative to the spec)"
            message = f"{path_text(item.path)}: nothing at {item.resolved}{shown}"
            problems.append(problem_at(document, item.path, message))
    return problems


def _load_profile(
    spec: RunSpec, document: YamlDocument, spec_dir: str, files: Files
) -> tuple[ClusterProfile | None, list[Problem]]:
    if spec.cluster == "auto":
        return None, []
    if spec.cluster == "local":
        return LOCAL, []
    file = absolute(spec.cluster, spec_dir)
    if not files.exists(file):
        message = (
            f"cluster: no profile at {file}{did_you_mean(spec.cluster, SPECIAL_CLUSTERS)} "
            "(allowed: a file, `local`, `auto`)"
        )
        return None, [problem_at(document, ("cluster",), message)]
    try:
        return read_profile(file, files), []
    except SpecError as error:
        return None, list(error.problems)


def read_profile(file: str, files: Files) -> ClusterProfile:
    """The cluster profile in `file` (an absolute path).

    Raises:
        SpecError: with every problem found.
    """
    document = read_yaml(_read(file, file, files), file)
    values = {} if document.value is None else document.value
    profile, problems = validate_values(ClusterProfile, document, values, ())
    problems = [*document.problems, *problems]
    if problems:
        raise SpecError(_sorted(problems))
    plain, _ = resolve_marked(
        ClusterProfile,
        profile.model_dump(mode="json"),
        base_dir=str(PurePosixPath(file).parent),
        exists=files.exists,
    )
    resolved: ClusterProfile = ClusterProfile.model_validate_json(_json(plain), strict=True)
    return resolved
