"""How the loader looks at the file system; passed in, so that it serves anybody. PURE."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.errors import Problem, SpecError
from slurm_jobs.common.manifests.rows import Content, ManifestRow
from slurm_jobs.common.manifests.values import RowOptions
from slurm_jobs.common.processors.plan import ImageRules, Size
from slurm_jobs.spec.plain_text import printable


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFacts:
    """What can be seen of a manifest that is a table, without reading its rows."""

    names: tuple[str, ...] = ()
    """Of its columns."""
    has_rows: bool = False
    problem: str = ""
    """Why it can be no manifest, as it follows its path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Beginning:
    """The first bytes of a file."""

    data: bytes
    is_whole: bool
    """Whether the file has no more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """How the loader looks at the file system."""

    read_text: Callable[[str], str]
    """Text of a file; raises OSError or UnicodeDecodeError."""
    exists: Callable[[str], bool]
    expand: Callable[[str], str] = lambda path: path
    """A path with `~` and `$NAME` replaced; raises PathExpansionError for an unknown name."""
    small_text: Callable[[str], str | None] = lambda _file: None
    """Text of a file of a few lines; None of a longer one, and where nobody looks."""
    first_line: Callable[[str], str | None] = lambda _file: None
    """First line of a file in UTF-8; None of another or an endless one, and where nobody looks."""
    beginning: Callable[[str], Beginning | None] = lambda _file: None
    """How a file begins; None where nobody can look."""
    sizes_in: Callable[[str], Mapping[str, int | None] | None] = lambda _folder: None
    """Bytes of what lies in a folder, by name: None each where there is very much, -1 of a link to
    nowhere. Nothing where there is no such folder; None where nobody can look."""
    checksums_in: Callable[[str], Mapping[str, str]] = lambda _folder: {}
    """SHA-256 of the files of a processor folder, by name; empty where nobody can look."""
    table: Callable[[str], TableFacts | None] = lambda _path: None
    """What can be seen of a table; None of what is none, and where nobody looks."""
    first_rows: Callable[[str, RowOptions], Sequence[ManifestRow]] = lambda _path, _options: ()
    """Rows of a manifest, from its beginning; none where nobody can look."""
    manifest_damage: Callable[[str, RowOptions], str] = lambda _path, _options: ""
    """Why a small text manifest cannot be read as a whole, as it follows its path; else ""."""
    is_folder: Callable[[str], bool] = lambda _path: False
    """Whether a path is a folder that can be seen."""
    image_size: Callable[[Content, str], Size | None] = lambda _image, _root: None
    """Width and height of an image of a row, whose relative path starts from a folder; None where
    they cannot be read."""
    image_rules: Callable[[str], ImageRules | None] = lambda _folder: None
    """What the image processor in a folder does; None where that is not known."""
    modules_in: Callable[[str], Collection[str]] = lambda _folder: ()
    """Names of the Python modules and packages in a folder."""
    has_module: Callable[[str], bool] = lambda _name: True
    """Whether this Python has a module of that name; none is imported."""
    write_obstacle: Callable[[str], str] = lambda _folder: ""
    """Why a folder can be neither made nor written, if it cannot; empty where nobody looks."""
    needs_images: bool = False
    """Whether the images of manifests must exist, which may be gone once a run has read them."""

    def holds(self, path: str) -> bool:
        """Whether something can be seen to lie at `path`."""
        try:
            return self.exists(path)
        except (
            OSError,
            ValueError,
            RuntimeError,
        ):  # a name too long, a folder closed to us, ~nobody
            return False

    def lacks(self, path: str) -> bool:
        """Whether it can be seen that nothing lies at `path`; not where the way is closed to us."""
        try:
            return not self.exists(path)
        except (OSError, ValueError, RuntimeError):
            return False

    def image_root_of(self, manifest: str) -> str:
        """Return the folder that image paths of a manifest start from by default."""
        return manifest if self.is_folder(manifest) else posixpath.dirname(manifest)

    def json_values(self, file: str) -> Mapping[str, Any]:
        """The keys and values of a JSON file; empty where there are none to be seen."""
        try:
            text = self.read_text(file) if self.holds(file) else "{}"
            values = json.loads(text.removeprefix("\ufeff"))
        except (OSError, ValueError, RecursionError):
            return {}
        return values if isinstance(values, dict) else {}


def read_text_of(file: str, files: Files) -> str:
    """Text of a spec or profile.

    Raises:
        SpecError: there is none that can be read.
    """
    if printable(file) != file or "\\" in file:
        message = "the file's path holds a line break, backslash or the like; move or rename it"
        raise SpecError([Problem(file=printable(file), line=0, column=0, message=message)])
    try:
        return files.read_text(file)
    except FileNotFoundError:
        message = "no such file"
    except UnicodeDecodeError as error:
        raise SpecError([_not_text(file, error)]) from None
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
    raise SpecError([Problem(file=file, line=0, column=0, message=message)])


def _not_text(file: str, error: UnicodeDecodeError) -> Problem:
    """At the first byte that is no UTF-8, as an editor counts lines and columns."""
    before = error.object[: error.start]
    line = before.count(b"\n") + 1
    column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
    message = f"not a text file in UTF-8 (the byte 0x{error.object[error.start]:02x} is none)"
    return Problem(file=file, line=line, column=column, message=message)
