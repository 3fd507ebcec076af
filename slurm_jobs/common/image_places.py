"""Where the images of a manifest may lie: what `check` and the reader of images agree on. PURE.

A manifest may be a stranger's, and name files of its reader's that were never meant to be in a
data set. So images lie in folders that the user named, or below them. Judged is the path as it is
written, `..` resolved: links in a folder are its owner's, and are followed (caches of hubs are made
of them).
"""

from __future__ import annotations

import posixpath
import re

_IN_ARCHIVE = re.compile(
    r"(.*?\.(?:tar|zip|tar\.\w+|tgz|tbz2?|txz|tzst))::(.*)", re.IGNORECASE | re.DOTALL
)


def place_of(name: str, root: str) -> tuple[str, str | None]:
    """What an image's name means: a file, or an archive and its member `cats/1.jpg`.

    Args:
        name: as the manifest has it: `cats/1.jpg`, or `photos.tar::cats/1.jpg`.
        root: absolute folder that relative paths start from.

    Returns:
        The absolute path of the file or archive, without `..`; and the member, None of a file.
    """
    found = _IN_ARCHIVE.fullmatch(name)
    file, member = (name, None) if found is None else found.groups()
    return _plain(posixpath.join(root, file)), member


def lies_within(path: str, folder: str) -> bool:
    """Whether a path is in a folder or below it; both absolute, the path as `place_of` has it."""
    return path.startswith(f"{_plain(folder).rstrip('/')}/")


def _plain(path: str) -> str:
    path = posixpath.normpath(path)
    return path[1:] if path.startswith("//") else path  # POSIX keeps two slashes apart
