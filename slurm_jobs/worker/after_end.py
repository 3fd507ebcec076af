"""Files that a stage needs until it is complete, and that its supervisor removes then.

A stage lists them as `remove_after_end` in its result. They are removed after the completion
record is written: until then the next attempt continues from them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

REMOVE_AFTER_END = "remove_after_end"
"""Key of a result: paths of folders below the stage's output folder."""


def remove_after_end(output_dir: Path, result: Mapping[str, Any]) -> str | None:
    """Remove the folders that a complete stage lists; return why one is still there, or None."""
    for name in listed_folders(result):
        folder = output_dir / name
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{folder} is not needed any more and could not be removed: {error}"
    return None


def listed_folders(result: Mapping[str, Any]) -> list[str]:
    """Return the folders of a result; a path that may lead out of the output folder is left out."""
    names = result.get(REMOVE_AFTER_END)
    if not isinstance(names, list):
        return []
    folders = []
    for name in names:
        if isinstance(name, str):
            parts = PurePosixPath(name).parts
            if parts and ".." not in parts and not PurePosixPath(name).is_absolute():
                folders.append(name)
    return folders
