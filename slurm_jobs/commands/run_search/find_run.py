"""Search for the run that a user names."""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.commands.run_search.newest_run import newest_of_spec, newest_run, where_else
from slurm_jobs.commands.run_search.remembered_dirs import searched_dirs
from slurm_jobs.commands.run_search.runs_dir import (
    default_runs_dir,
    refuse_broken_link,
    refuse_missing_place,
    runs_by_age,
    runs_in,
    unreadable_place,
)
from slurm_jobs.commands.run_search.spec_origin import SPEC_SUFFIXES
from slurm_jobs.formats.dataset_folder import INFO_NAME
from slurm_jobs.formats.expand import expand_typed
from slurm_jobs.run_folder.paths import RUN_STAMP, RunPaths
from slurm_jobs.run_folder.run_records import read_plan_values

_MAX_NAME_BYTES, _MAX_PATH_BYTES = 255, 4096
"""NAME_MAX and PATH_MAX of Linux."""


def find_run(text: str | None) -> Path:
    """Return the folder of the run that a user names.

    The name is a folder, a run's id, or a spec file (the newest run that was submitted from it).
    The start of an id is enough in the usual folder of runs. None selects the newest run, see
    `newest_run`.

    Raises:
        InputError: there is no such run, or several match.
        OSError: the parent folder cannot be listed.
    """
    runs_dir = default_runs_dir()
    if text is None:
        return newest_run().run_dir
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
        return newest_of_spec(path.absolute())
    if path.parent.resolve() == runs_dir.resolve():  # `runs/shapes-2026`, as a shell completes it
        text = path.name
    matches = _matches(text, runs_in(runs_dir))
    if len(matches) == 1:
        return matches[0]
    runs_inside = runs_by_age(path) if text and path.is_dir() else []
    if runs_inside:
        message = f"{text} is a folder of runs; name one, such as the newest: {runs_inside[-1]}"
        raise InputError(message)
    away: Mapping[Path, str] = {}
    if text and not matches and len(path.parts) == 1:
        searched = searched_dirs()
        elsewhere: list[Path] = []
        for folder in searched.there:
            elsewhere += runs_in(folder) if folder != runs_dir else []
        # Only a whole id or name: a start would make a mistyped word act on a forgotten run.
        matches = [run for run in elsewhere if text in {run.name, RUN_STAMP.sub("", run.name)}]
        if len(matches) == 1:
            return matches[0]
        matches = matches or _matches(text, elsewhere)
        away = searched.away
    if text and not matches:
        _refuse_away(path, runs_dir)
    raise InputError(_no_run_message(text, path, matches, runs_dir, away))


def _matches(text: str, runs: Sequence[Path]) -> list[Path]:
    """Return the runs whose ids begin with a text."""
    matches = sorted(run for run in runs if text and run.name.startswith(text))
    # Runs of `shapes-tune` also begin with `shapes`, and are not meant.
    return [run for run in matches if RUN_STAMP.sub("", run.name) == text] or matches


def _no_run_message(
    text: str, path: Path, matches: Sequence[Path], runs_dir: Path, away: Mapping[Path, str]
) -> str:
    """Return the message for a name that matches several runs, or none.

    `away` has folders of runs that could not be searched, with the reasons.
    """
    if path.suffix in SPEC_SUFFIXES and not path.exists():
        return (
            f"no such file: {text}, and no run in {runs_dir} begins with it; name a spec or a run, "
            "or set SLURM_JOBS_RUNS_DIR"
        )
    stage = _stage_of_newest(text, runs_dir)
    if stage is not None:
        return stage
    if matches:
        is_usual = all(run.parent == runs_dir for run in matches)
        shown = ", ".join(run.name if is_usual else str(run) for run in matches[:5])
        where = f" in {runs_dir}" if is_usual else ""
        return (
            f"no single run `{text}`: it is not a run folder, and these{where} begin with it: "
            f"{shown}. Name the folder; a spec's file means its newest run, or set "
            "SLURM_JOBS_RUNS_DIR"
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
    if not runs_in(runs_dir):
        return f"no run `{text}`: it is not a run folder, and there is no run in {runs_dir}" + (
            where_else(runs_dir)
        )
    from slurm_jobs.base.texts.did_you_mean import did_you_mean

    near = did_you_mean(text, {RUN_STAMP.sub("", run.name) for run in runs_in(runs_dir)})
    unsearched = [f"; {folder} could not be searched: {why}" for folder, why in away.items()]
    return (
        f"no run `{text}`: it is not a run folder, and no run in {runs_dir} begins with it"
        f"{near or ';'} `slurm-jobs runs` lists them; set SLURM_JOBS_RUNS_DIR to look in another "
        f"folder{''.join(unsearched)}"
    )


def _stage_of_newest(text: str, runs_dir: Path) -> str | None:
    """Return the message for a name that is a stage of the newest run, not a run; else None."""
    runs = runs_by_age(runs_dir)
    if not runs:
        return None
    newest = runs[-1]
    try:
        stages = [stage["name"] for stage in read_plan_values(RunPaths(newest))["stages"]]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if text.partition(":")[0] not in stages:
        return None
    return (
        f"no run `{text}`: `{text.partition(':')[0]}` is a stage of the newest run {newest}. Write "
        "the run before the stage; the verb's --help shows where it takes a stage"
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
        raise unreadable_place(folder, unreadable, error.strerror, error.errno) from error


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
        refuse_broken_link(path, link)
    if path.suffix in SPEC_SUFFIXES:
        return
    folder = path.absolute() if is_path else runs_dir / path
    if is_path or was_run:
        refuse_missing_place(folder)
    if was_run and folder.is_dir():
        raise unreadable_place(path, folder, "it is there, and has no run.json")
    if was_run and not runs_in(folder.parent):
        why = "no run is in it" if folder.parent.is_dir() else "it is not a folder"
        raise unreadable_place(path, folder.parent, why)


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
