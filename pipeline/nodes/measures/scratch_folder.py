"""Temporary folder of a probe, which is removed however the probe ends.

The next probe on the file system removes what a killed one left: each folder names the process
that made it, and folders of living processes are kept.
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

from slurm_jobs.base.files import make_private_dir, read_json, write_json_atomic
from slurm_jobs.base.processes.process_sessions import NotedProcess, note_process, process_lives

_PREFIX = "slurm-jobs-probe-"
_OWNER = "owner.json"
FORGOTTEN_S = 3600.0
"""Age at which a folder of another host's process, which cannot be checked, is removed: no
probe takes so long."""


@contextmanager
def scratch_folder(base: Path) -> Iterator[Path]:
    """Provide a new private folder in `base`, which is created if missing.

    Raises:
        OSError: it cannot be created.
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
        try:
            age_s = time.time() - folder.stat().st_mtime
            lives = process_lives(NotedProcess(**read_json(folder / _OWNER)))
        except FileNotFoundError:
            if not folder.exists():  # it is being removed now
                continue
            lives = None  # it is being created, or its process was killed
        except (OSError, ValueError, TypeError):  # of another user
            continue
        if lives is False or (lives is None and age_s > FORGOTTEN_S):
            shutil.rmtree(folder, ignore_errors=True)
