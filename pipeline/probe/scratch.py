"""A folder for what a probe writes, that is gone when it ends, however it ends.

What a killed probe leaves is removed by the next one that begins on that file system: each folder
says in it which process made it, and one whose process lives is left alone.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from slurm_jobs.common.files import make_private_dir, read_json, write_json_atomic
from slurm_jobs.common.process import NotedProcess, note_process, process_lives

_PREFIX = "slurm-jobs-probe-"
_OWNER = "owner.json"
FORGOTTEN_S = 3600.0
"""A folder of another host's process, which cannot be asked for, is removed when it is older: no
probe takes so long."""


@contextmanager
def scratch_folder(base: Path) -> Iterator[Path]:
    """A new private folder in `base`, which is made where it is not there.

    Raises:
        OSError: it cannot be made.
    """
    make_private_dir(base)
    remove_left_behind(base)
    folder = base / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    make_private_dir(folder)
    try:
        write_json_atomic(folder / _OWNER, asdict(note_process(os.getpid())))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_behind(base: Path) -> None:
    """Remove the folders in `base` whose processes have ended."""
    for folder in base.glob(f"{_PREFIX}*"):
        if _is_left_behind(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_left_behind(folder: Path) -> bool:
    try:
        lives = process_lives(NotedProcess(**read_json(folder / _OWNER)))
        age_s = time.time() - folder.stat().st_mtime
    except FileNotFoundError:  # it is being made or removed at this moment, or its maker was killed
        lives = None
        try:
            age_s = time.time() - folder.stat().st_mtime
        except FileNotFoundError:
            return False
    except (OSError, ValueError, TypeError):  # another user's
        return False
    return lives is False or (lives is None and age_s > FORGOTTEN_S)
