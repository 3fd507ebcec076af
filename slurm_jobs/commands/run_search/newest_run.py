"""The newest run: of a spec, of the working folder, near that folder, or of this user."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

from slurm_jobs.base.errors import InputError, SlurmJobsError
from slurm_jobs.commands.run_search.remembered_dirs import remembered_dirs, searchable_dirs
from slurm_jobs.commands.run_search.runs_dir import (
    VARIABLE,
    default_runs_dir,
    is_missing,
    refuse_missing_place,
    runs_by_age,
)
from slurm_jobs.commands.run_search.spec_origin import (
    SPEC_SUFFIXES,
    SpecOrigin,
    spec_origin,
    was_submitted_from,
)
from slurm_jobs.run_folder.paths import RUN_STAMP, RunPaths, age_key, is_run

_MAX_SPECS = 20
"""YAML files of the working folder that are read: a folder of data may hold thousands."""
_MAX_ORIGINS = 100
"""Runs whose records are read in search of one from the working folder, newest first."""

Scope = Literal["usual", "from here", "near", "anywhere"]
"""Where the newest run was found: it is the newest in `./runs` or `$SLURM_JOBS_RUNS_DIR`; it was
submitted from the working folder; it is near that folder; or it is the newest of this user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewestRun:
    """Run that a command takes if the user names none."""

    run_dir: Path
    scope: Scope
    away: Mapping[Path, str] = field(default_factory=dict)
    """Folders that may have a newer one but cannot be read, with the reason."""


def newest_run() -> NewestRun:
    """Return the newest run that was submitted from the working folder or from a spec in it.

    If there is none, return the newest in `./runs`, then near the working folder, then the user's
    newest run. `$SLURM_JOBS_RUNS_DIR` names the only folder in which to look.

    Raises:
        InputError: there is none.
        FileError: the folder of runs is a broken link, or what holds it is missing.
        OSError: the folder of runs cannot be listed.
    """
    runs_dir, here = default_runs_dir(), Path.cwd()
    usual_runs = runs_by_age(runs_dir)
    usual = usual_runs[-1] if usual_runs else None
    if VARIABLE in os.environ:
        if usual is not None:
            return NewestRun(run_dir=usual, scope="usual")
        refuse_missing_place(runs_dir)
        message = f"no run in {runs_dir}{where_else(runs_dir)}"
        raise InputError(message)
    remembered = remembered_dirs()
    of_here = searchable_dirs([entry for entry in remembered if entry.is_of(here)])
    others = [d for d in of_here.there if os.path.realpath(d) != os.path.realpath(runs_dir)]
    from_here = _newest_from(here, [*usual_runs, *_own_runs(others)])
    if from_here is not None and from_here != usual:
        return NewestRun(run_dir=from_here, scope="from here", away=of_here.away)
    if usual is not None:
        return NewestRun(run_dir=usual, scope="usual", away=of_here.away)
    refuse_missing_place(runs_dir)
    near = _nearby_run(here)
    if near is not None:
        return NewestRun(run_dir=near, scope="near", away=of_here.away)
    everywhere = searchable_dirs(remembered)
    anywhere = max(_own_runs(everywhere.there), key=age_key, default=None)
    if anywhere is not None:
        return NewestRun(run_dir=anywhere, scope="anywhere", away=everywhere.away)
    message = f"no run in {runs_dir}{_first_steps(runs_dir, everywhere.away)}"
    raise InputError(message if everywhere.away else f"there is no run here yet: {message}")


def where_else(runs_dir: Path) -> str:
    """Return the end of a message that a folder of runs has none: why, and where to look."""
    near = _nearby_run(Path.cwd())
    if near is not None:
        return _elsewhere("The newest run near this folder", near)
    everywhere = searchable_dirs(remembered_dirs())
    anywhere = max(_own_runs(everywhere.there), key=age_key, default=None)
    if anywhere is not None:
        return _elsewhere("Your newest run", anywhere)
    return _first_steps(runs_dir, everywhere.away)


def _elsewhere(description: str, run: Path) -> str:
    """Return what to do about a run in another folder; `description` says which run it is."""
    return (
        f", where commands look unless you name a run. {description} is {run}: name it, or first "
        f"type `export SLURM_JOBS_RUNS_DIR={shlex.quote(str(run.parent))}`"
    )


def _first_steps(runs_dir: Path, away: Mapping[Path, str]) -> str:
    """Return what to do in a folder that has no run; `away` has other folders of runs."""
    if away:
        folders = [f"{folder} cannot be read now: {why}" for folder, why in away.items()]
        return f"{is_missing(runs_dir)}. You have submitted elsewhere, but {'; '.join(folders)}"
    return (
        f"{is_missing(runs_dir)}. Type `slurm-jobs submit SPEC` to start a run. If you have runs "
        "elsewhere, name a run's folder or its spec, or set SLURM_JOBS_RUNS_DIR to the folder of "
        "your runs"
    )


def _own_runs(folders: Iterable[Path]) -> list[Path]:
    """Return this user's runs in folders that others may share; none of unreadable folders."""
    own = []
    for folder in folders:
        with suppress(OSError):
            own += [entry for entry in folder.iterdir() if _is_own_run(entry)]
    return own


def _is_own_run(folder: Path) -> bool:
    with suppress(OSError):
        return is_run(folder) and RunPaths(folder).run_json.stat().st_uid == os.getuid()
    return False


def _newest_from(folder: Path, runs: Sequence[Path]) -> Path | None:
    """Return the newest run that was submitted from `folder`, or from a spec in it."""
    newest = sorted(runs, key=age_key, reverse=True)[:_MAX_ORIGINS]
    return next((run for run in newest if was_submitted_from(run, folder)), None)


def _nearby_run(here: Path) -> Path | None:
    """Return a run that a user in the folder `here` probably means; None if there is none.

    The first of: the run that `here` is in, the newest run in `here`, the newest of the specs in
    `here`, and the newest in `runs` of a folder above, from that folder if possible. Other folders
    are not listed: `/home` may mount each of its entries.
    """
    folders = (here, *here.parents)
    for folder in folders:
        with suppress(OSError):
            if is_run(folder):
                return folder
    with suppress(OSError):
        runs = runs_by_age(here)
        if runs:
            return runs[-1]
        runs_of_specs = list(_newest_of_specs(here))
        if runs_of_specs:
            return max(runs_of_specs, key=age_key)
    for folder in folders:
        with suppress(OSError):
            runs = runs_by_age(folder / "runs")
            if runs:
                return _newest_from(folder, runs) or runs[-1]
    return None


def _newest_of_specs(folder: Path) -> Iterator[Path]:
    """Yield the newest run of each spec in a folder."""
    files = (path for path in folder.iterdir() if path.suffix in SPEC_SUFFIXES)
    for file in islice(files, _MAX_SPECS):
        with suppress(SlurmJobsError, OSError):  # it is no spec, or has no run
            yield newest_of_spec(file)


def newest_of_spec(file: Path) -> Path:
    """Return the newest run that was submitted from a spec file, not from another of that name.

    Raises:
        SpecError: the file is no spec, or its name or folder of runs is wrong.
        InputError: there is no such run.
        OSError: its folder of runs cannot be listed.
    """
    # Here, because it imports pydantic, and most commands name no spec.
    from slurm_jobs.commands.run_search.spec_place import name_and_runs_dir

    name, runs_dir = name_and_runs_dir(file)
    runs = [run.absolute() for run in runs_by_age(runs_dir) if RUN_STAMP.sub("", run.name) == name]
    if not runs:
        refuse_missing_place(runs_dir)
        message = (
            f"no run of `{name}` in {runs_dir}{is_missing(runs_dir)}; submit {file}, name a run "
            "folder, or set SLURM_JOBS_RUNS_DIR to the folder of your runs"
        )
        raise InputError(message)
    for run in reversed(runs):
        if spec_origin(run, file, runs_dir).relation in {"same", "moved"}:
            return run
    raise InputError(_other_spec_message(runs[-1], spec_origin(runs[-1], file, runs_dir), file))


def _other_spec_message(newest: Path, origin: SpecOrigin, file: Path) -> str:
    """Return the message for a spec whose name other runs have; `newest` is one of them."""
    message = f"no run in {newest.parent} was submitted from {file}. The newest run of this name, "
    if origin.relation == "unclear":
        return message + (
            f"{newest.name}, was submitted from {origin.file}, which does not exist any more and "
            f"had another text. If both are the same spec, name the run: {newest}; `resume` takes "
            "the file as `--spec`"
        )
    if origin.file is None:
        return message + (
            f"{newest.name}, does not record the file that it was submitted from. If it was this "
            f"file, name the run: {newest}"
        )
    return message + (
        f"{newest.name}, was submitted from {origin.file}. To use this run, name it: {newest}. "
        "Give one of the two specs another `name`, so that each finds its own runs by it"
    )
