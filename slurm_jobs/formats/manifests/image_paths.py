"""Paths of images in a manifest, and the folders in which they are allowed.

A manifest may come from a stranger and name private files of its reader. So images must be in or
below folders that the user named. The check uses the written path with `..` resolved. Links in a
folder are its owner's, and are followed, because caches of hubs consist of them.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable
from urllib.parse import unquote

_IN_ARCHIVE = re.compile(
    r"(.*?\.(?:tar|zip|tar\.\w+|tgz|tbz2?|txz|tzst))::(.*)", re.IGNORECASE | re.DOTALL
)

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_URL_END = re.compile(r"(?<=\.[A-Za-z]{3})[?#].*|(?<=\.[A-Za-z]{4})[?#].*", re.DOTALL)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2028-\u202e\u2060\ufeff\x00-\x1f\x7f]")
_NO_FILE_NAMES = (
    (
        re.compile(r"base64[,;:]"),
        "base64 without its media type: write `data:image/png;base64,...`",
    ),
    (re.compile(r"b['\"]|\\x[0-9a-f]{2}"), "bytes as Python prints them: write base64, or a path"),
    (
        re.compile(r"(?:0x)?(?:ffd8ff|89504e47|47494638|52494646)[0-9a-f]{10}"),
        "hexadecimal: write base64",
    ),
    (
        re.compile(r"ivborw0kggo|/9j/4|r0lgod|uklgr|aaaadgpq|qk[0-9a-z+/]{6}a{4}"),
        "base64 of a picture that is cut off or broken: write it whole, or a path",
    ),
    (re.compile(r"\[['\"]|<img "), "a list or a tag, not the name of one file: write paths alone"),
    (
        re.compile(r"[a-z]:[\\/](?!/)"),
        "a path of Windows: write the path from image_root, with `/`",
    ),
)
"""Beginnings of values that name no file, in lower case."""
_AROUND = " \t\r\n\"'\u00a0\ufeff"


def place_of(name: str, root: str) -> tuple[str, str | None]:
    """Return the file, or the archive and member, that an image's name refers to.

    Args:
        name: as in the manifest: `cats/1.jpg`, `photos.tar::cats/1.jpg`, or
            `file:///data/cats/1.jpg`.
        root: absolute folder that relative paths start from.

    Returns:
        The absolute path of the file or archive, without `..`; and the member, None for a file.
    """
    match = _IN_ARCHIVE.fullmatch(_without_file_scheme(name))
    file, member = (_without_file_scheme(name), None) if match is None else match.groups()
    return _plain(posixpath.join(root, file)), member


def is_within(path: str, folder: str) -> bool:
    """Check whether a path is in or below a folder; both absolute, from `place_of`."""
    return path.startswith(f"{_plain(folder).rstrip('/')}/")


def normal_forms(name: str) -> list[str]:
    """Return the same name in the other normal forms of Unicode: macOS writes NFD, others NFC."""
    forms = (unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    return [form for form in dict.fromkeys(forms) if form != name]


def strange_name(name: str) -> tuple[str, str]:
    """Describe what is strange about a name that no file has, and how to write it as a path.

    Returns:
        A description with the remedy, and the name that is probably meant; both empty if nothing is
            recognised. The second is empty if no file can be meant.
    """
    start = name.strip(_AROUND)[:20].lower()
    for beginning, words in _NO_FILE_NAMES:
        if beginning.match(start) or beginning.match(name[:20].lower()):
            return words, ""
    scheme = _SCHEME.match(start)
    if scheme and scheme[1] != "file":
        return f"{scheme[1]}:// is not fetched: download the files, and name their paths", ""
    if scheme and _without_file_scheme(name) == name:
        return "a file:// URL that names a machine: write the path from image_root", ""
    if start.startswith(("~", "$")):
        return f"`{start[0]}` is not expanded in a manifest: write the path from image_root", ""
    stripped = name.strip(_AROUND)
    spaced = re.sub("[\u00a0\u202f]", " ", stripped)
    meant = _INVISIBLE.sub("", spaced)
    kinds = {
        "blanks or quotes around it": stripped != name,
        "a no-break blank": spaced != stripped,
        "an invisible character or line break": meant != spaced,
        "backslashes": "\\" in meant,
        "codes of a URL (`%20`)": _PERCENT.search(meant) is not None,
        "the end of a URL (`?...`, `#...`)": _URL_END.search(meant) is not None,
    }
    seen = [kind for kind, is_seen in kinds.items() if is_seen]
    if not seen:
        return "", ""
    return f"it has {' and '.join(seen)}", unquote(_URL_END.sub("", meant)).replace("\\", "/")


ABSOLUTE_HINT = "the path is absolute; correct it, or write it relative to image_root"


def missing_hint(name: str, exists: Callable[[str], bool]) -> str:
    """Describe the strange or absolute name of a missing file; suggest a file that `exists`."""
    strange, meant = strange_name(name)
    if strange and not meant:
        return strange
    near = [meant] if strange else other_suffixes(name)
    there = next((other for other in near if exists(other)), None)
    if there is None and not strange:
        return ABSOLUTE_HINT if _without_file_scheme(name).startswith("/") else ""
    if there is None:
        return f"{strange}: write the plain path"
    return f"{f'{strange}; ' if strange else ''}write `{there}`, which is there"


def other_suffixes(name: str) -> list[str]:
    """Return the name with its suffix in other cases, and as `.jpg` for `.jpeg`."""
    stem, suffix = posixpath.splitext(name)
    if not suffix:
        return []
    twin = {".jpg": ".jpeg", ".jpeg": ".jpg"}.get(suffix.lower(), suffix)
    suffixes = (suffix.lower(), suffix.upper(), twin, twin.upper())
    return [stem + other for other in dict.fromkeys(suffixes) if other != suffix]


def _without_file_scheme(name: str) -> str:
    """Return the path of a `file:` URL; any other name unchanged."""
    if name[:5].lower() != "file:":
        return name
    match = re.match(r"(?i)file:(?://(?:localhost)?)?(/(?!/).*)", name, re.DOTALL)
    return name if match is None else unquote(match[1])


def _plain(path: str) -> str:
    path = posixpath.normpath(path)
    return path[1:] if path.startswith("//") else path  # POSIX keeps two slashes apart
