"""Access of the loader to the files that a spec names, passed in as functions. PURE."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from slurm_jobs.base.errors import Problem, SpecError
from slurm_jobs.base.written_values import printable
from slurm_jobs.formats.manifests.messages import Content, ManifestRow
from slurm_jobs.formats.processors.image_plans import ImageRules, Size
from slurm_jobs.spec.marked_paths import Surroundings

if TYPE_CHECKING:
    from slurm_jobs.formats.manifests.row_options import RowOptions

_UNSEARCHABLE = (OSError, ValueError, RuntimeError)
"""Errors for a name that is too long, a folder without access, and an unknown ~user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFacts:
    """Facts about a manifest that is a table, without its rows."""

    names: tuple[str, ...] = ()
    """Column names; empty for tars, whose rows have keys of their own."""
    has_rows: bool = False
    problem: str = ""
    """Reason why it is not a manifest, to follow its path in a message."""
    split: str = ""
    """Split that is read; empty if the folder is not divided into splits."""
    others: tuple[str, ...] = ()
    """The folder's other splits."""
    num_files: int = 1
    num_missing: int = 0
    """Files that are not here, although the names of the others count them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HubAnswer:
    """Answer of a hub about the config.json of a model."""

    kind: Literal["found", "none", "no access", "not known"]
    """`none`: the hub has no such file, so no job can read it. `no access`: it does not show it to
    this user. `not known`: it was not asked, or did not answer."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Keys and values of the file, if it was found."""
    reason: str = ""
    """Reason why it was not found."""


def hub_not_asked(_repo: str, _revision: str | None, _environment: Mapping[str, str]) -> HubAnswer:
    """Return that nothing is known."""
    return HubAnswer(kind="not known")


@dataclass(frozen=True, kw_only=True, slots=True)
class Beginning:
    """First bytes of a file."""

    data: bytes
    is_whole: bool
    """True if the file has no more bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """File system as the loader sees it."""

    read_text: Callable[[str], str]
    """Return the text of a file; raises OSError or UnicodeDecodeError."""
    exists: Callable[[str], bool]
    expand: Callable[[str], str] = lambda path: path
    """Expand `~` and `$NAME` in a path; raises PathExpansionError for an unknown name."""
    expand_text: Callable[[str], str] = lambda text: text
    """Expand `$NAME` in other text; raises the same."""
    small_text: Callable[[str], str | None] = lambda _file: None
    """Return the text of a short file; None for a longer one, and without access."""
    first_line: Callable[[str], str | None] = lambda _file: None
    """Return the first line of a file in UTF-8; None for other or endless text, and without access.
    """
    beginning: Callable[[str], Beginning | None] = lambda _file: None
    """Return the first bytes of a file; None without access."""
    sizes_in: Callable[[str], Mapping[str, int | None] | None] = lambda _folder: None
    """Return the sizes of a folder's entries, by name: None for each if there are very many, -1 for
    a broken link. Empty without such a folder; None without access."""
    checksums_in: Callable[[str], Mapping[str, str]] = lambda _folder: {}
    """Return the SHA-256 of the files of a processor folder, by name; empty without access."""
    table: Callable[[str], TableFacts | None] = lambda _path: None
    """Return the facts about a table; None for other files, and without access."""
    first_rows: Callable[[str, RowOptions], Sequence[ManifestRow]] = lambda _path, _options: ()
    """Return the first rows of a manifest; none without access."""
    manifest_damage: Callable[[str, RowOptions], str | None] = lambda _path, _options: None
    """Return why a small text manifest cannot be read completely, to follow its path; else None."""
    is_folder: Callable[[str], bool] = lambda _path: False
    """Return whether a path is a visible folder."""
    image_size: Callable[[Content, str], Size | None] = lambda _image, _root: None
    """Return width and height of an image of a row, whose relative path starts from a folder; None
    if they cannot be read."""
    image_head: Callable[[Content, str], bytes | None] = lambda _image, _root: None
    """Return the first bytes of the same image; None if they cannot be read."""
    image_rules: Callable[[str], ImageRules | None] = lambda _folder: None
    """Return the rules of the image processor in a folder; None if unknown."""
    processor_problem: Callable[[str], str | None] = lambda _folder: None
    """Return why the image processor in a folder is of no kind that `preprocess` understands; None
    if it is, and without access."""
    hub_config: Callable[[str, str | None, Mapping[str, str]], HubAnswer] = hub_not_asked
    """Return the config.json of a model on the hub: its name, its revision, and the environment
    that a spec sets for the job."""
    modules_in: Callable[[str], Collection[str]] = lambda _folder: ()
    """Return the names of the Python modules and packages in a folder."""
    has_module: Callable[[str], bool] = lambda _name: True
    """Return whether this Python has a module of that name; none is imported."""
    write_obstacle: Callable[[str], str | None] = lambda _folder: None
    """Return why a folder can be neither created nor written; None if it can, or without access."""
    needs_images: bool = False
    """True if the images of manifests must exist; they may be deleted once a run has read them."""

    def around(self, base_dir: str) -> Surroundings:
        """Return what a path or variable in a file of this folder means."""
        return Surroundings(base_dir=base_dir, expand=self.expand, expand_text=self.expand_text)

    def holds(self, path: str) -> bool:
        """Check whether `path` visibly exists."""
        try:
            return self.exists(path)
        except _UNSEARCHABLE:
            return False

    def lacks(self, path: str) -> bool:
        """Check whether `path` certainly does not exist; False if its folder cannot be searched."""
        try:
            return not self.exists(path)
        except _UNSEARCHABLE:
            return False

    def image_root_of(self, manifest: str) -> str:
        """Return the folder that image paths of a manifest start from by default."""
        return manifest if self.is_folder(manifest) else posixpath.dirname(manifest)

    def json_values(self, file: str) -> Mapping[str, Any]:
        """Return the keys and values of a JSON file; empty if there are none to be read."""
        try:
            text = self.read_text(file) if self.holds(file) else "{}"
            values = json.loads(text.removeprefix("\ufeff"))
        except (OSError, ValueError, RecursionError):
            return {}
        return values if isinstance(values, dict) else {}


def read_text_of(file: str, files: Files) -> str:
    """Return the text of a spec or profile.

    Raises:
        SpecError: it cannot be read.
    """
    line = column = 0
    try:
        if printable(file) == file and "\\" not in file:
            return files.read_text(file)
        message = "the file's path holds a line break, backslash or control character; rename it"
    except FileNotFoundError:
        message = "no such file"
    except UnicodeDecodeError as error:
        # At the first byte that is not UTF-8, in an editor's lines and columns.
        before = error.object[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
        message = f"not a text file in UTF-8 (the byte 0x{error.object[error.start]:02x} is none)"
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
    raise SpecError([Problem(file=printable(file), line=line, column=column, message=message)])
