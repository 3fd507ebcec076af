"""A spec while it is checked, and after it was loaded without problems. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.spec.marked_paths import MarkedString
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.spec_files import Files
from slurm_jobs.spec.stage_views import Views
from slurm_jobs.spec.yaml.document import KeyPath, YamlDocument, path_text, problem_at, was_set


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedSpec:
    """Spec without problems, and its sources."""

    spec: RunSpec
    """Complete spec: absolute paths, and built-in stages' configs with their defaults."""
    profile: ClusterProfile | None
    """Cluster profile; None for `cluster: auto`, which needs a query of Slurm."""
    text: str
    file: str
    spec_dir: str
    overrides: tuple[str, ...]
    """All overrides in it."""
    document: YamlDocument
    """Document with the places of later problems."""
    left_out: tuple[str, ...] = ()
    """Descriptions of earlier overrides whose stage no longer exists."""
    notes: tuple[Problem, ...] = ()
    """Settings that are valid but probably unintended, each with its place."""


Finding = tuple[Problem, bool]
"""Problem, and whether it is an error; else it is a note."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedSpec:
    """Spec as its checks see it: raw values with their places, and what is valid of them."""

    document: YamlDocument
    views: Views
    files: Files
    configs: Mapping[str, Any] = field(default_factory=dict)
    """Configs of the built-in stages, those without problems."""
    marked: Sequence[MarkedString] = ()
    """All paths in it, and texts in which variables were replaced."""

    @property
    def expanded(self) -> list[MarkedString]:
        """Return the paths without an unknown variable in them."""
        return [item for item in self.marked if not item.problem]

    @property
    def folder(self) -> str:
        """Return the folder of the spec's file."""
        return str(PurePosixPath(self.document.file).parent)

    def problem(self, path: KeyPath, message: str, *, at_key: bool = False) -> Problem:
        """Return a problem with the value at `path`, whose name the message then begins with."""
        return self.at(path, f"{path_text(path)}: {message}", at_key=at_key)

    def at(self, path: KeyPath, message: str, *, at_key: bool = False) -> Problem:
        """Return a problem with this message, at `path`."""
        return problem_at(self.document, path, message, at_key=at_key)

    def first_set(self, stage: str, *keys: KeyPath) -> KeyPath:
        """Return the first of a stage's keys that was set on the command line; else empty."""
        place: KeyPath = ("stages", stage)
        paths = ((*place, *key) for key in keys)
        return next((path for path in paths if was_set(self.document, place, path)), ())
