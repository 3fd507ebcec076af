"""Where the images of a manifest may lie: what `check` and the reader of images agree on. PURE.

A manifest may be a stranger's, and name files of its reader's that were never meant to be in a
data set. So images lie in folders that the user named, or below them. Judged is the path as it is
written, `..` resolved: links in a folder are its owner's, and are followed (caches of hubs are made
of them).
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from urllib.parse import unquote

_IN_ARCHIVE = re.compile(
    r"(.*?\.(?:tar|zip|tar\.\w+|tgz|tbz2?|txz|tzst))::(.*)", re.IGNORECASE | re.DOTALL
)

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_URL_END = re.compile(r"(?<=\.[A-Za-z]{3})[?#].*|(?<=\.[A-Za-z]{4})[?#].*", re.DOTALL)
_AROUND = " \t\r\n\"'\u00a0\ufeff"


def place_of(name: str, root: str) -> tuple[str, str | None]:
    """What an image's name means: a file, or an archive and its member `cats/1.jpg`.

    Args:
        name: as the manifest has it: `cats/1.jpg`, `photos.tar::cats/1.jpg`, or
            `file:///data/cats/1.jpg`.
        root: absolute folder that relative paths start from.

    Returns:
        The absolute path of the file or archive, without `..`; and the member, None of a file.
    """
    match = _IN_ARCHIVE.fullmatch(_without_file_scheme(name))
    file, member = (_without_file_scheme(name), None) if match is None else match.groups()
    return _plain(posixpath.join(root, file)), member


def lies_within(path: str, folder: str) -> bool:
    """Whether a path is in a folder or below it; both absolute, the path as `place_of` has it."""
    return path.startswith(f"{_plain(folder).rstrip('/')}/")


def normal_forms(name: str) -> list[str]:
    """Return the same name in the other normal forms of Unicode: macOS writes NFD, others NFC."""
    forms = (unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    return [form for form in dict.fromkeys(forms) if form != name]


def strange_name(name: str) -> tuple[str, str]:
    """Say what is strange about a name that no file has, and how it would be written as a path.

    Returns:
        What was recognised, with the remedy, and the name as it may be meant; both empty if nothing
        is recognised. Where no file can be meant, the second is empty.
    """
    start = name.strip(_AROUND)[:20].lower()
    scheme = _SCHEME.match(start)
    if scheme and scheme[1] != "file":
        return f"{scheme[1]}:// is not fetched: download the files, and name their paths", ""
    if scheme and _without_file_scheme(name) == name:
        return "a file:// URL that names a machine: write the path from image_root", ""
    if start.startswith(("~", "$")):
        return f"`{start[0]}` is not expanded in a manifest: write the path from image_root", ""
    if start.startswith(("['", '["', "<img ")):
        return "a list or a tag, not the name of one file: write paths alone", ""
    if re.match(r"[a-z]:[\\/]", start):
        return "a path of Windows: write the path from image_root, with `/`", ""
    kinds = {
        "blanks or quotes around it": (meant := name.strip(_AROUND)) != name,
        "backslashes": "\\" in meant,
        "codes of a URL (`%20`)": _PERCENT.search(meant) is not None,
        "the end of a URL (`?...`, `#...`)": _URL_END.search(meant) is not None,
    }
    seen = [kind for kind, is_seen in kinds.items() if is_seen]
    if not seen:
        return "", ""
    return f"it has {' and '.join(seen)}", unquote(_URL_END.sub("", meant)).replace("\\", "/")


def other_suffixes(name: str) -> list[str]:
    """Return the name with its suffix in other cases, and as `.jpg` for `.jpeg`."""
    stem, suffix = posixpath.splitext(name)
    if not suffix:
        return []
    twin = {".jpg": ".jpeg", ".jpeg": ".jpg"}.get(suffix.lower(), suffix)
    suffixes = (suffix.lower(), suffix.upper(), twin, twin.upper())
    return [stem + other for other in dict.fromkeys(suffixes) if other != suffix]


def _without_file_scheme(name: str) -> str:
    """The path of a `file:` URL; of any other name the name."""
    if name[:5].lower() != "file:":
        return name
    match = re.match(r"(?i)file:(?://(?:localhost)?)?(/(?!/).*)", name, re.DOTALL)
    return name if match is None else unquote(match[1])


def _plain(path: str) -> str:
    path = posixpath.normpath(path)
    return path[1:] if path.startswith("//") else path  # POSIX keeps two slashes apart
