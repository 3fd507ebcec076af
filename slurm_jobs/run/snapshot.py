"""Snapshot of the code that a run's jobs use, so that later edits cannot change them.

`lib.zip` holds our own two packages, `user/` the modules that the spec's stages name and the paths
under `code:`. `start.py` puts them on `sys.path`, and `made_by.json` gives the format of job orders
that `lib.zip` reads. Runs of earlier versions have a folder `lib/` instead.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_jobs import __version__
from slurm_jobs.base.errors import InputError
from slurm_jobs.base.files import (
    make_private_dir,
    read_json,
    write_json_atomic,
    write_text_atomic,
)
from slurm_jobs.base.regular_files import read_text
from slurm_jobs.formats.configs.command_stages import DRILL_RUN, NODE_RUN, TUNE_RUN
from slurm_jobs.run.code_files import (
    all_files,
    content_digest,
    public_files,
    reporting_unreadable_code,
)
from slurm_jobs.run.library import Library
from slurm_jobs.run.start_script import START_SCRIPT
from slurm_jobs.run.static_imports import imported_packages
from slurm_jobs.run_folder.orders import ORDER_FORMAT
from slurm_jobs.spec.model import RunSpec, Stage

_OURS = frozenset({TUNE_RUN, NODE_RUN, DRILL_RUN})
"""Entry points that are in every snapshot."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeSnapshot:
    """Existing snapshot."""

    folder: Path
    user_fingerprint: str
    """Hash of the user's code; part of the fingerprints of the stages that run it."""

    @property
    def start_script(self) -> Path:
        """Return the script that a job's Python runs."""
        return self.folder / "start.py"

    @property
    def reads_our_orders(self) -> bool:
        """Return whether the slurm-jobs in the snapshot reads orders of this version."""
        path = _made_by(self.folder)  # the first snapshots have no such file
        return path.exists() and read_json(path)["order_format"] == ORDER_FORMAT


def _made_by(folder: Path) -> Path:
    return folder / "made_by.json"


def code_sources(spec: RunSpec, spec_dir: Path) -> list[Path]:
    """Return the user's files that the jobs run."""
    return user_sources(own_functions(spec), spec.code, spec_dir)


def uses_own_code(stage: Stage) -> bool:
    """Check whether a stage runs the user's code: a function of it, or a shell command."""
    return stage.run is None or (":" in stage.run and stage.run not in _OURS)


def own_functions(spec: RunSpec) -> list[str]:
    """Return `package.module:function` of every stage that runs the user's code."""
    return [stage.run for stage in spec.stages.values() if stage.run and uses_own_code(stage)]


def user_sources(run_names: Sequence[str], code: Sequence[str], spec_dir: Path) -> list[Path]:
    """Return the user's files and folders: `code:`, modules of the entry points, and their imports.

    A module outside the spec's folder belongs to the stage's Python and is not copied.

    Raises:
        InputError: this user cannot read a module's folder.
    """
    with reporting_unreadable_code():
        modules = _with_neighbours({top_module(run) for run in run_names}, spec_dir)
    return sorted({*(Path(path) for path in code), *modules})


def _with_neighbours(names: set[str], spec_dir: Path) -> set[Path]:
    """Return the files and folders of modules, and of those that they import, in a spec's folder.

    Python would find these, too, if a module ran as a script in that folder. One that has the name
    of a module of Python stays out, because Python has mostly imported its own by then.
    """
    sources: set[Path] = set()
    waiting, seen = set(names), set(sys.stdlib_module_names)
    while waiting:
        name = waiting.pop()
        seen.add(name)
        source = module_source(name, spec_dir)
        if source is None:
            continue
        sources.add(source)
        for file in [source] if source.is_file() else source.rglob("*.py"):
            with suppress(OSError):  # what cannot be read is reported where it is copied
                waiting |= imported_packages(read_text(file, errors="replace")) - seen
    return sources


def top_module(run: str) -> str:
    """Return `package` of `package.module:function`."""
    return run.partition(":")[0].partition(".")[0]


def module_source(module: str, spec_dir: Path) -> Path | None:
    """Return the file or folder of a module in the spec's folder; None if it is elsewhere."""
    for candidate in (spec_dir / f"{module}.py", spec_dir / module):
        if candidate.is_file() or (candidate / "__init__.py").is_file():
            return candidate
    return None


def tree_fingerprint(sources: Sequence[Path]) -> str:
    """Return a hash of names, contents and executable bits in a snapshot of `sources`."""
    return _fingerprint(public_files(sources).items())


def _fingerprint(files: Iterable[tuple[str, Path]]) -> str:
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(f"{name}\0{os.access(path, os.X_OK)}\0".encode(errors="surrogateescape"))
        digest.update(content_digest(path))
    return digest.hexdigest()[:16]


def refuse_uncopyable(sources: Sequence[Path]) -> None:
    """Raise if no snapshot could be taken, before anything is created.

    Raises:
        InputError: two sources have the same name, or this user cannot read a part of one.
    """
    _refuse_equal_names(sources)
    public_files(sources)


def take_snapshot(
    code_dir: Path,
    sources: Sequence[Path],
    files_of: Callable[[Sequence[Path]], Mapping[str, Path]] = public_files,
) -> CodeSnapshot:
    """Copy our packages and the user's sources; reuse an equal snapshot.

    Args:
        code_dir: folder of the run's snapshots.
        sources: of the user.
        files_of: return the files to copy of the sources, by name.

    Raises:
        InputError: two of the user's sources have the same name, or this user cannot read one.
    """
    ours = Library()
    files = files_of(sources)
    user = _fingerprint(files.items())
    total = hashlib.sha256(f"{ours.fingerprint()}{user}".encode()).hexdigest()[:16]
    folder = code_dir / total
    snapshot = CodeSnapshot(folder=folder, user_fingerprint=user)
    if folder.is_dir():
        return snapshot
    _refuse_equal_names(sources)
    make_private_dir(code_dir)
    temp = code_dir / f".{total}.{os.urandom(6).hex()}.tmp"
    try:
        make_private_dir(temp / "user")
        ours.write(temp / "lib.zip", as_path=folder.absolute() / "lib.zip")
        _copy(files, temp / "user")
        write_text_atomic(temp / "start.py", START_SCRIPT)
        (temp / "start.py").chmod(0o600)
        write_json_atomic(_made_by(temp), {"order_format": ORDER_FORMAT, "version": __version__})
        os.rename(temp, folder)  # noqa: PTH104 - fails if another command was faster, unlike Path.replace
    except OSError as error:
        if not folder.is_dir():
            # zipfile does not say which disk is full
            error.filename = error.filename or str(folder)
            raise
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    return snapshot


def renew_ours(code_dir: Path, used: CodeSnapshot) -> CodeSnapshot:
    """Take a snapshot with the current slurm-jobs and the user's code of `used`."""
    renewed = take_snapshot(code_dir, sorted((used.folder / "user").iterdir()), all_files)
    # The sources came from other folders, in another order, but the code is the same.
    return replace(renewed, user_fingerprint=used.user_fingerprint)


def _refuse_equal_names(sources: Sequence[Path]) -> None:
    by_name: dict[str, Path] = {}
    for source in sources:
        other = by_name.setdefault(source.name, source)
        if other != source:
            message = (
                f"code: {other} and {source} have the same name, and the run's snapshot puts "
                "both into one folder; rename one"
            )
            raise InputError(message)


def _copy(files: Mapping[str, Path], folder: Path) -> None:
    """Copy contents and executable bits, readable by the owner only."""
    for name, path in files.items():
        target = folder / name
        make_private_dir(target.parent)
        shutil.copyfile(path, target)
        target.chmod(0o700 if os.access(path, os.X_OK) else 0o600)
