"""Reader of the probe records of nodes; an unreadable file becomes a problem."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from slurm_jobs.base.written_values import printable
from slurm_jobs.formats.node_records.probe_files import (
    folder_of_probes,
    is_folder_of_probes,
    read_probe,
)
from slurm_jobs.formats.node_records.probe_measures import NodeProbe

_AHEAD_S = 86_400.0
"""A record further in the future comes from a wrong clock. Own choice."""
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError)


def newest_probes(runs_dir: Path, problems: list[str]) -> tuple[NodeProbe, ...]:
    """Return the newest probe of each node from all runs and users in `runs_dir`, by node.

    An interrupted probe counts where there is no complete one.
    """
    everybodys = filter(is_folder_of_probes, _listed(runs_dir, problems))
    by_node = _files_by_node(everybodys, problems)
    return tuple(probe for files in by_node.values() for probe in _newest(files, problems))


def probes_of_run(runs_dir: Path, run_id: str, problems: list[str]) -> tuple[NodeProbe, ...]:
    """Return the newest probe that a run made of each node, by node; a complete one, if any.

    Only files of the run's owner count, because others can create files with the run's name.
    """
    folder = folder_of_probes(runs_dir, (runs_dir / run_id).stat().st_uid)
    probes = []
    for files in _files_by_node([folder], problems).values():
        probes += _newest([path for path in files if f".{run_id}.a" in path.name], problems)
    return tuple(probe for probe in probes if probe.run_id == run_id)


def _files_by_node(own_dirs: Iterable[Path], problems: list[str]) -> Mapping[str, list[Path]]:
    """Return the records in the users' folders, newest first."""
    by_node: dict[str, list[Path]] = {}
    for own_dir in own_dirs:
        for folder in _listed(own_dir, problems):
            if not folder.name.startswith(".") and not folder.is_symlink() and folder.is_dir():
                by_node.setdefault(folder.name, []).extend(_listed(folder, problems))
    return {
        node: sorted(by_node[node], key=lambda path: path.name, reverse=True)
        for node in sorted(by_node)
    }


def _listed(folder: Path, problems: list[str]) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{printable(str(folder))}: probes of nodes not read: {error.strerror}")
        return []


def _newest(files: Iterable[Path], problems: list[str]) -> list[NodeProbe]:
    """Return the first readable and complete probe in a list, otherwise the first readable one."""
    partial: list[NodeProbe] = []
    for path in files:
        if path.suffix != ".json" or path.name.startswith("."):  # being written
            continue
        try:
            probe = read_probe(path)
        except FileNotFoundError:  # older than the newest ones, and removed meanwhile
            continue
        except _UNREADABLE as error:
            problems.append(f"{printable(str(path))}: not read as a probe: {error}")
            continue
        if probe.measured_unix_s > time.time() + _AHEAD_S:
            problems.append(f"{printable(str(path))}: left out: its moment is still to come")
            continue
        if not probe.is_partial:
            return [probe]
        partial.append(probe)
    return partial[:1]
