"""Reads what probes kept of nodes; a file that cannot be read becomes a problem."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from slurm_jobs.common.probe_records import NodeProbe, ProbePaths, read_probe

_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError)


def newest_probes(runs_dir: Path, problems: list[str]) -> tuple[NodeProbe, ...]:
    """The newest probe of each node that was ever probed from a run in `runs_dir`, by node."""
    paths = ProbePaths(runs_dir)
    found = []
    for folder in _listed(paths.probes_dir, problems):
        if not folder.name.startswith("."):
            files = sorted(_listed(folder, problems), reverse=True)
            found += _first(files, problems)
    return tuple(found)


def probes_of_run(runs_dir: Path, run_id: str, problems: list[str]) -> tuple[NodeProbe, ...]:
    """The newest probe that a run made of each of its nodes, by node."""
    paths = ProbePaths(runs_dir)
    found = []
    for folder in _listed(paths.probes_dir, problems):
        files = sorted(folder.glob(f"[0-9]*.{run_id}.a*.json"), reverse=True)
        found += _first(files, problems)
    return tuple(found)


def _listed(folder: Path, problems: list[str]) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{folder}: probes of nodes not read: {error.strerror}")
        return []


def _first(files: Iterable[Path], problems: list[str]) -> list[NodeProbe]:
    """The first that can be read, as a list of one; none where none can."""
    for path in files:
        if path.suffix != ".json" or path.name.startswith("."):  # being written
            continue
        try:
            return [read_probe(path)]
        except FileNotFoundError:  # older than the newest ones, and removed meanwhile
            continue
        except _UNREADABLE as error:
            problems.append(f"{path}: not read as a probe: {error}")
    return []
