"""The spec file that a run was submitted from, compared with one that a user names.

Two specs may have the same name and the same folder of runs, so the name does not tell whose run it
is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.files import read_json
from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.run_folder.paths import RunPaths

SPEC_SUFFIXES = frozenset({".yaml", ".yml"})
"""Suffixes of spec files."""

Relation = Literal["same", "moved", "unclear", "other"]
"""The run was submitted from this file; from this file at another path; from a file that does not
exist any more and may be this one; or from another file, or it is unknown from which."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecOrigin:
    """File that a run was submitted from."""

    file: str | None
    """Path at that time; None if it cannot be read."""
    relation: Relation
    """Relation to the file that the user names."""


def spec_origin(run_dir: Path, file: Path, runs_dir: Path) -> SpecOrigin:
    """Compare the origin of a run with a spec file, whose folder of runs is `runs_dir`."""
    paths = RunPaths(run_dir)
    recorded = _recorded_file(paths)
    return SpecOrigin(file=recorded, relation=_relation(paths, recorded, file, runs_dir))


def was_submitted_from(run_dir: Path, folder: Path) -> bool:
    """Check whether a run was submitted in `folder`, or from a spec in it or in a folder below."""
    paths = RunPaths(run_dir)
    file = _recorded_file(paths)
    if file is not None:
        spec_dir = Path(file).parent
        # The folder is as the system names it, and the file may have been named through a link.
        for place in (spec_dir, Path(os.path.realpath(spec_dir))):
            if place.is_relative_to(folder):
                return True
    return _text_in(paths.provenance(1), "working_dir") == str(folder)


def _recorded_file(paths: RunPaths) -> str | None:
    return _text_in(paths.spec_origin, "spec_file") or _text_in(paths.run_json, "spec_file")


def _relation(paths: RunPaths, recorded: str | None, file: Path, runs_dir: Path) -> Relation:
    if recorded is None:
        return "other"
    try:
        if file.samefile(recorded):
            return "same"
        is_gone = False
    except OSError:  # it was moved or deleted, or this machine mounts it elsewhere
        is_gone = True
    # A folder that was moved together with its runs, or that has another path on this machine.
    before = _text_in(paths.resolved_spec, "runs_dir")
    if before is not None and os.path.relpath(recorded, before) == os.path.relpath(file, runs_dir):
        return "moved"
    if not is_gone:
        return "other"
    try:
        has_same_text = read_bytes(paths.given_spec) == read_bytes(file)
    except OSError:
        has_same_text = False
    return "moved" if has_same_text else "unclear"


def _text_in(file: Path, key: str) -> str | None:
    """Return a text of a record; None if it cannot be read, or has none."""
    try:
        values: Any = read_json(file)
    except (DamagedFileError, OSError):
        return None
    value = values.get(key) if isinstance(values, dict) else None
    return value if isinstance(value, str) and value else None
