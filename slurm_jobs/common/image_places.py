"""Where the images of a manifest may lie: what `check` and the reader of images agree on. PURE.

A manifest may be a stranger's, and name files of its reader's that were never meant to be in a
data set. So images lie in one folder, or below it. Judged is the path as it is written, `..`
resolved: links in the folder are its owner's, and are followed (caches of hubs are made of them).
"""

from __future__ import annotations

import posixpath
import re

_IN_ARCHIVE = re.compile(
    r"(.*?\.(?:tar|zip|tar\.\w+|tgz|tbz2?|txz|tzst))::(.*)", re.IGNORECASE | re.DOTALL
)


def split_archive(name: str) -> tuple[str, str] | None:
    """The archive and the member that `photos.tar::cats/1.jpg` names; None of a plain file."""
    found = _IN_ARCHIVE.fullmatch(name)
    return None if found is None else (found[1], found[2])


def file_of(name: str, root: str) -> str:
    """The absolute path of the file or archive that an image's name means, without `..`.

    Args:
        name: as the manifest has it.
        root: absolute folder that relative paths start from.
    """
    found = split_archive(name)
    path = posixpath.normpath(posixpath.join(root, name if found is None else found[0]))
    return path[1:] if path.startswith("//") else path  # POSIX keeps two slashes apart


def lies_within(path: str, folder: str) -> bool:
    """Whether a path is in a folder or below it; both absolute, the path without `..`."""
    whole = posixpath.normpath(folder).rstrip("/")
    return path.startswith(f"{whole}/")
