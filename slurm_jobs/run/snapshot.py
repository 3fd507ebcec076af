"""The snapshot of the code that a run's jobs use, so that a later edit cannot change them.

`lib/` holds our own two packages, `user/` the modules that the spec's stages
name and what it lists under `code:`. `start.py` puts them on `sys.path`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.common.files import PRIVATE_DIR_MODE, make_private_dir, write_text_atomic
from slurm_jobs.shipped import shipped_path

PACKAGE_DIR = Path(__file__).resolve().parent.parent
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".git", ".venv", "runs")

START_SCRIPT = '''"""Starts slurm-jobs from this snapshot; run it with `python -P`."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.dont_write_bytecode = True

from slurm_jobs.task import main  # noqa: E402

if __name__ == "__main__":
    main(sys.argv[1:])
'''


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeSnapshot:
    """A snapshot that exists."""

    folder: Path
    user_fingerprint: str
    """Hash of the user's own code; part of the fingerprints of the stages that run it."""

    @property
    def start_script(self) -> Path:
        """What a job's Python runs."""
        return self.folder / "start.py"


def user_sources(run_names: Sequence[str], code: Sequence[str], spec_dir: Path) -> list[Path]:
    """The user's files and folders: top-level modules of the entry points, and `code:`.

    A module that does not lie beside the spec belongs to the stage's Python and is not copied.
    """
    found = [Path(path) for path in code]
    for run in run_names:
        module = run.partition(":")[0].partition(".")[0]
        for candidate in (spec_dir / f"{module}.py", spec_dir / module):
            if candidate.is_file() or (candidate / "__init__.py").is_file():
                found.append(candidate)
                break
    return sorted(set(found))


def tree_fingerprint(sources: Sequence[Path]) -> str:
    """Hash of the names and contents of files and folders."""
    digest = hashlib.sha256()
    for source in sources:
        files = sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]
        for file in files:
            if "__pycache__" in file.parts or file.suffix == ".pyc":
                continue
            digest.update(f"{file.relative_to(source.parent)}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def take_snapshot(code_dir: Path, sources: Sequence[Path]) -> CodeSnapshot:
    """Copy our packages and the user's sources; an equal snapshot is used again."""
    packages = [PACKAGE_DIR, PACKAGE_DIR.parent / "pipeline"]
    packages = [package for package in packages if package.is_dir()]
    user = tree_fingerprint(sources)
    total = hashlib.sha256(f"{tree_fingerprint(packages)}{user}".encode()).hexdigest()[:16]
    folder = code_dir / total
    snapshot = CodeSnapshot(folder=folder, user_fingerprint=user)
    if folder.is_dir():
        return snapshot
    make_private_dir(code_dir)
    temp = code_dir / f".{total}.{uuid.uuid4().hex[:12]}.tmp"
    for package in packages:
        _copy(package, temp / "lib" / package.name)
    if not (PACKAGE_DIR / "_shipped").is_dir():
        _copy(shipped_path("templates"), temp / "lib" / "templates")
    (temp / "user").mkdir()
    for source in sources:
        _copy(source, temp / "user" / source.name)
    write_text_atomic(temp / "start.py", START_SCRIPT)
    try:
        os.rename(temp, folder)  # noqa: PTH104 - fails if another command was faster, unlike Path.replace
    except OSError:
        if not folder.is_dir():
            raise
        shutil.rmtree(temp)
    return snapshot


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=_LEFT_OUT, copy_function=_copy_private)
        for folder in [target, *(p for p in target.rglob("*") if p.is_dir())]:
            folder.chmod(PRIVATE_DIR_MODE)
    else:
        _copy_private(source, target)


def _copy_private(source: str | Path, target: str | Path) -> None:
    """Contents, and whether they can be executed; for the owner alone."""
    shutil.copyfile(source, target)
    executable = os.access(source, os.X_OK)
    Path(target).chmod(0o700 if executable else 0o600)
