"""Lists of the user's files that attempts used; attempts that used the same files share a list."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.files import create_once, dump_json, make_private_dir, read_json
from slurm_jobs.run_folder.paths import RunPaths

WHOLE_CODE = "*"
"""Name in a list that stands for all files."""


def record_used_files(paths: RunPaths, stage: str, names: Collection[str]) -> str:
    """Store the names of the files that an attempt used, and return the id of the list.

    Raises:
        OSError: the run folder cannot be written.
    """
    files = [WHOLE_CODE] if WHOLE_CODE in names else sorted(names)
    data = dump_json({"files": files}).encode()
    used_code = hashlib.sha256(data).hexdigest()[:16]
    path = paths.used_code(stage, used_code)
    make_private_dir(path.parent)
    if not path.exists():
        create_once(path, data)
    return used_code


def read_used_files(paths: RunPaths, stage: str, used_code: str) -> frozenset[str] | None:
    """Return the names of the files in a list; None for all files, or if the list is unusable.

    Raises:
        OSError: it cannot be read.
    """
    try:
        values = read_json(paths.used_code(stage, used_code))
    except (FileNotFoundError, DamagedFileError):
        return None
    names = values.get("files") if isinstance(values, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return None if WHOLE_CODE in names else frozenset(names)
