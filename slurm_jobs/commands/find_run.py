"""Search for the run that a user names."""

from __future__ import annotations

import errno
import glob
import os
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.run_folder.paths import RUN_STAMP, RunPaths, age_key, is_run
from slurm_jobs.shared.errors import (
    FileError,
    InputError,
    PathExpansionError,
    SlurmJobsError,
    truncated,
)
from slurm_jobs.shared.expand import expand_path, expand_typed
from slurm_jobs.shared.manifest_formats import INFO_NAME

if TYPE_CHECKING:
    from slurm_jobs.commands.spec_origin import SpecOrigin

_MAX_NAME_BYTES, _MAX_PATH_BYTES = 255, 4096
"""NAME_MAX and PATH_MAX of Linux."""

SPEC_SUFFIXES = frozenset({".yaml", ".yml"})
"""Suffixes of files that select a spec's newest run."""

_MAX_SPECS = 20
"""YAML files of the working folder that are read: a folder of data may hold thousands."""


def default_runs_dir() -> Path:
    """Return the folder of runs: `$SLURM_JOBS_RUNS_DIR`, else `./runs`.

    Raises:
        PathExpansionError: the variable names an unknown user or variable.
    """
    given = os.environ.get("SLURM_JOBS_RUNS_DIR")
    if given is None:
        return Path("runs").absolute()
    try:
        return Path(expand_path(given)).absolute()
    except PathExpansionError as error:
        message = f"SLURM_JOBS_RUNS_DIR is {given}: {error}"
        raise PathExpansionError(message) from error


def find_run(text: str | None) -> Path:
    """Return the folder of the run that a user names.

    The name is a folder, a run's id or the start of one, or a spec file (the newest run that was
    submitted from it); None selects the newest run.

    Raises:
        InputError: there is no such run, or several match.
        OSError: the parent folder cannot be listed.
    """
    runs_dir = default_runs_dir()
    if text is None:
        return _newest(runs_dir)
    text = expand_typed(text)
    path = Path(text)
    names = [os.fsencode(part) for part in path.parts]
    if (
        sum(map(len, names)) + len(names) >= _MAX_PATH_BYTES
        or max(map(len, names), default=0) > _MAX_NAME_BYTES
    ):
        message = f"no run `{truncated(text, 200)}`: it is longer than a file's name can be"
        raise InputError(message)
    if text and _holds_run(path):
        return path.absolute()
    if path.suffix in SPEC_SUFFIXES and path.is_file():
        return _newest_of_spec(path.absolute())
    if path.parent.resolve() == runs_dir.resolve():  # `runs/shapes-2026`, as a shell completes it
        text = path.name
    matches = sorted(run for run in _runs(runs_dir) if text and run.name.startswith(text))
    # Runs of `shapes-tune` also begin with `shapes`, and are not meant.
    matches = [run for run in matches if RUN_STAMP.sub("", run.name) == text] or matches
    if len(matches) == 1:
        return matches[0]
    runs_inside = _by_age(path) if text and path.is_dir() else []
    if runs_inside:
        message = f"{text} is a folder of runs; name one, such as the newest: {runs_inside[-1]}"
        raise InputError(message)
    if text and not matches:
        _refuse_away(path, runs_dir)
    raise InputError(_no_run_message(text, path, matches, runs_dir))


def _no_run_message(text: str, path: Path, matches: Sequence[Path], runs_dir: Path) -> str:
    """Return the message for a name that matches several runs, or none."""
    if path.suffix in SPEC_SUFFIXES and not path.exists():
        return (
            f"no such file: {text}, and no run in {runs_dir} begins with it; name a spec or a run, "
            "or set SLURM_JOBS_RUNS_DIR"
        )
    if matches:
        return (
            f"no single run `{text}`: it is not a run folder, and these in {runs_dir} begin with "
            f"it: {', '.join(run.name for run in matches[:5])}. Name the folder; a spec's file "
            "means its newest run, or set SLURM_JOBS_RUNS_DIR"
        )
    if text and (path / INFO_NAME).is_file():
        return (
            f"{text} is a data set, not a run: `verify`, `samples` and `packing` take it; name the "
            "run that made it"
        )
    if text and path.is_dir():
        return (
            f"{text} is neither a run (it has no run.json) nor a finished data set (no "
            f"dataset.json), and no run in {runs_dir} begins with it; name the folder that has "
            "one, or set SLURM_JOBS_RUNS_DIR"
        )
    if not _runs(runs_dir):
        return f"no run `{text}`: it is not a run folder, and there is no run in {runs_dir}" + (
            where_else(runs_dir)
        )
    from slurm_jobs.shared.errors import did_you_mean  # slow, and rarely needed

    near = did_you_mean(text, {RUN_STAMP.sub("", run.name) for run in _runs(runs_dir)})
    return (
        f"no run `{text}`: it is not a run folder, and no run in {runs_dir} begins with it"
        f"{near or ';'} `slurm-jobs runs` lists them; set SLURM_JOBS_RUNS_DIR to look in another "
        "folder"
    )


def _holds_run(folder: Path) -> bool:
    """Check whether a folder has a `run.json`.

    Raises:
        FileError: the folder cannot be searched.
    """
    try:
        return stat.S_ISREG(RunPaths(folder).run_json.stat().st_mode)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}:
            return False
        whole = folder.absolute()
        unreadable = whole
        for place in reversed((whole, *whole.parents)):  # name the uppermost
            try:
                os.stat(place / ".")  # noqa: PTH116 - a Path would drop the dot
            except OSError:
                unreadable = place
                break
        raise _unreadable(folder, unreadable, error.strerror) from error


def _unreadable(what: Path, where: Path, why: str | None) -> FileError:
    return FileError(
        f"{what} cannot be read: {where}: {why}. Its file system may be unavailable (not "
        "mounted, or its server is down); run the command again when it is back"
    )


def refuse_missing_place(folder: Path) -> None:
    """Raise FileError if the parent of a folder is missing, or the folder is a broken link.

    The first submit creates the folder of runs itself.
    """
    whole = folder.absolute()
    for place in [*reversed(whole.parents), whole]:
        _refuse_broken_link(folder, place)
        if place != whole and not place.exists():
            raise _unreadable(folder, place, "there is no such folder")


def _refuse_broken_link(what: Path, place: Path) -> None:
    if place.is_symlink() and not place.exists():
        link = f"a link to {place.readlink()}, which does not exist"
        raise _unreadable(what, place, link)


def is_missing(runs_dir: Path) -> str:
    """Return an addition to messages that name a folder of runs; empty if it is a folder."""
    if runs_dir.is_dir():
        return ""
    if runs_dir.exists():
        return ", which is not a folder"
    return (
        ", which does not exist: either nothing has been submitted there, or its file system is "
        "unavailable (not mounted, or its server is down)"
    )


def _refuse_away(path: Path, runs_dir: Path) -> None:
    """Raise FileError if both a run and the folder that would hold it are missing.

    Also raise it if the name is a broken link, or the folder of runs has a broken link that begins
    so. A name as `run.create` generates it was a run once. Without its `run.json`, and with no
    other run there, the file system is not mounted; with other runs there, the run was removed or
    the name is wrong.
    """
    is_path, was_run = len(path.parts) > 1, RUN_STAMP.search(path.name) is not None
    links = [path.absolute()]
    if path.name and (not is_path or path.parent.resolve() == runs_dir.resolve()):
        links += sorted(runs_dir.glob(f"{glob.escape(path.name)}*"))
    for link in links:
        _refuse_broken_link(path, link)
    if path.suffix in SPEC_SUFFIXES:
        return
    folder = path.absolute() if is_path else runs_dir / path
    if is_path or was_run:
        refuse_missing_place(folder)
    if was_run and folder.is_dir():
        raise _unreadable(path, folder, "it is there, and has no run.json")
    if was_run and not _runs(folder.parent):
        why = "no run is in it" if folder.parent.is_dir() else "it is not a folder"
        raise _unreadable(path, folder.parent, why)


def _runs(runs_dir: Path) -> list[Path]:
    try:
        folders = list(runs_dir.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder for folder in folders if is_run(folder)]


def _by_age(runs_dir: Path) -> list[Path]:
    """Return the runs in a folder, the newest last."""
    return sorted(_runs(runs_dir), key=age_key)


def _newest(runs_dir: Path) -> Path:
    runs = _by_age(runs_dir)
    if not runs:
        refuse_missing_place(runs_dir)
        message = f"no run in {runs_dir}{where_else(runs_dir)}"
        raise InputError(message)
    return runs[-1].absolute()


def where_else(runs_dir: Path) -> str:
    """Return the end of a message that a folder of runs has none: why, and where to look."""
    from slurm_jobs.commands.nearby_runs import nearby_run

    here = Path.cwd()
    run = nearby_run(here) or max(_newest_of_specs(here), key=age_key, default=None)
    if run is None:
        return (
            f"{is_missing(runs_dir)}; name a run's folder or a spec file, which says where its "
            "runs are, or set SLURM_JOBS_RUNS_DIR to the folder of your runs"
        )
    return (
        f", where commands look unless you name a run. The newest run near this folder is {run}: "
        f"name it, or first type `export SLURM_JOBS_RUNS_DIR={shlex.quote(str(run.parent))}`"
    )


def _newest_of_specs(folder: Path) -> Iterator[Path]:
    """Yield the newest run of each spec in a folder."""
    files = (path for path in folder.iterdir() if path.suffix in SPEC_SUFFIXES)
    for file in islice(files, _MAX_SPECS):
        with suppress(SlurmJobsError, OSError):  # it is no spec, or has no run
            yield _newest_of_spec(file)


def _newest_of_spec(file: Path) -> Path:
    """Return the newest run that was submitted from a spec file, not from another of that name."""
    from slurm_jobs.commands.read_spec import disk_files
    from slurm_jobs.commands.spec_origin import spec_origin
    from slurm_jobs.spec.load import name_and_runs_dir

    name, spec_runs_dir = name_and_runs_dir(str(file), disk_files())
    runs_dir = Path(spec_runs_dir)
    runs = [run.absolute() for run in _by_age(runs_dir) if RUN_STAMP.sub("", run.name) == name]
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


def given_run(target: str, of_spec: Mapping[str, Any], verb: str) -> Path | None:
    """Return the run of `probe` or `tune` whose result is printed again; None if a spec was given.

    `of_spec` are values of options that need a spec, by name; false if not given.

    Raises:
        InputError: there is no such run, or an option for a spec was given.
    """
    path = Path(target)
    if path.suffix in SPEC_SUFFIXES or path.is_file():
        return None
    if wrong := [name for name, value in of_spec.items() if value]:
        message = (
            f"{wrong[0]} is for a spec, and {target} is a run, whose result is printed again; "
            f"name the spec's file to {verb} again"
        )
        raise InputError(message)
    return find_run(target)
