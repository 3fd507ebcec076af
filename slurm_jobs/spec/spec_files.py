"""Files that a spec names, and the marks on values that are paths. PURE."""

from __future__ import annotations

import dataclasses
import json
import posixpath
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_jobs.shared.config import AddressMarker, PathMarker
from slurm_jobs.shared.errors import PathExpansionError, Problem, SpecError
from slurm_jobs.shared.expand import REFERENCE, referenced_stage
from slurm_jobs.shared.manifests.messages import Content, ManifestRow
from slurm_jobs.shared.processors.image_plans import ImageRules, Size
from slurm_jobs.shared.redact import printable
from slurm_jobs.spec.model_keys import fields_of, is_model
from slurm_jobs.spec.value_types import NodePathMarker, ProgramMarker, TextMarker
from slurm_jobs.spec.yaml.document import KeyPath

if TYPE_CHECKING:
    from slurm_jobs.shared.manifests.values import RowOptions

# Access of the loader to the file system, passed in as functions.


_UNSEARCHABLE = (OSError, ValueError, RuntimeError)
"""Errors for a name that is too long, a folder without access, and an unknown ~user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFacts:
    """Facts about a manifest that is a table, without its rows."""

    names: tuple[str, ...] = ()
    """Column names."""
    has_rows: bool = False
    problem: str = ""
    """Reason why it is not a manifest, to follow its path in a message."""


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
    manifest_damage: Callable[[str, RowOptions], str] = lambda _path, _options: ""
    """Return why a small text manifest cannot be read completely, to follow its path; else ""."""
    is_folder: Callable[[str], bool] = lambda _path: False
    """Return whether a path is a visible folder."""
    image_size: Callable[[Content, str], Size | None] = lambda _image, _root: None
    """Return width and height of an image of a row, whose relative path starts from a folder; None
    if they cannot be read."""
    image_head: Callable[[Content, str], bytes | None] = lambda _image, _root: None
    """Return the first bytes of the same image; None if they cannot be read."""
    image_rules: Callable[[str], ImageRules | None] = lambda _folder: None
    """Return the rules of the image processor in a folder; None if unknown."""
    modules_in: Callable[[str], Collection[str]] = lambda _folder: ()
    """Return the names of the Python modules and packages in a folder."""
    has_module: Callable[[str], bool] = lambda _name: True
    """Return whether this Python has a module of that name; none is imported."""
    write_obstacle: Callable[[str], str] = lambda _folder: ""
    """Return why a folder can be neither created nor written; empty if it can, and without access.
    """
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


# Paths, model references and stage references among validated values.
#
# Types mark strings (`InputPath`, `OutputPath`), so that paths of all models become absolute in
# one place.


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MarkedString:
    """String that its type marks as a path, or text in which variables were replaced."""

    path: KeyPath
    """Place of the value."""
    marker: PathMarker
    given: str
    resolved: str
    problem: str = ""
    """Reason why it could not be expanded; `resolved` is then the raw value."""


def absolute(text: str, base_dir: str) -> str:
    """Return `text` as an absolute path; keep a leading reference to a stage."""
    match = REFERENCE.match(text)
    if match is not None and referenced_stage(match[1]) is not None:
        return text
    return "/" + posixpath.normpath(posixpath.join(base_dir, text)).lstrip("/")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Meaning of a relative path, a `~` or a `$VARIABLE`."""

    base_dir: str
    """Absolute folder of the file that contains the values."""
    expand: Callable[[str], str]
    """Function that expands `~` and `$NAME` in a path; raises PathExpansionError for an unknown
    name."""
    expand_text: Callable[[str], str]
    """Function that expands `$NAME` in other text; raises the same."""


def resolve_marked(
    target: Any, values: Any, around: Surroundings, *, path: KeyPath = ()
) -> tuple[Any, list[MarkedString]]:
    """Make marked strings absolute in plain `values` of the form that `target` describes.

    Values of another form are kept unchanged.

    Returns:
        New values, and every marked string found.
    """
    marked: list[MarkedString] = []

    def visit(hint: Any, value: Any, here: KeyPath, markers: tuple[Any, ...]) -> Any:
        if typing.get_origin(hint) is typing.Annotated:
            inner, *metadata = typing.get_args(hint)
            return visit(inner, value, here, (*markers, *metadata))
        if value is None:
            return None
        if typing.get_origin(hint) in {typing.Union, types.UnionType}:
            branches = [a for a in typing.get_args(hint) if a is not type(None)]
            return visit(_branch(branches, value), value, here, markers)
        if isinstance(value, str):
            marker = next((m for m in markers if isinstance(m, PathMarker)), None)
            if marker is None:
                return value
            try:
                resolved, problem = _resolved(value, marker, around), ""
            except PathExpansionError as error:
                resolved, problem = value, str(error)
            is_plain_text = isinstance(marker, TextMarker) and resolved == value
            if not is_plain_text or problem:
                marked.append(
                    MarkedString(
                        path=here, marker=marker, given=value, resolved=resolved, problem=problem
                    )
                )
            return resolved
        arguments = typing.get_args(hint) or (Any,)
        if isinstance(value, dict):
            fields = fields_of(hint)
            other = arguments[-1] if typing.get_origin(hint) is dict else Any
            return {k: visit(fields.get(k, other), v, (*here, k), ()) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [visit(arguments[0], v, (*here, i), ()) for i, v in enumerate(value)]
        return value

    return visit(target, values, path, ()), marked


def _resolved(given: str, marker: PathMarker, around: Surroundings) -> str:
    if isinstance(marker, TextMarker):
        return around.expand_text(given)
    if isinstance(marker, NodePathMarker):
        is_for_node = given.startswith("~") or (given[:1] == "$" and given[:2] != "$$")
        return given if is_for_node else absolute(given, around.base_dir)
    if isinstance(marker, AddressMarker) and ("://" in given or given.startswith("pipe:")):
        return given
    text = around.expand(given)
    is_on_path = isinstance(marker, ProgramMarker) and "/" not in text
    return text if is_on_path else absolute(text, around.base_dir)


def _branch(branches: list[Any], value: Any) -> Any:
    """Return the branch of a union that takes a value; the first if none does."""
    for branch in branches:
        is_annotated = typing.get_origin(branch) is typing.Annotated
        bare = typing.get_args(branch)[0] if is_annotated else branch
        origin = typing.get_origin(bare) or bare
        if (
            (isinstance(value, dict) and (origin is dict or is_model(bare)))
            or (isinstance(value, str) and origin is str)
            or (origin is typing.Literal and value in typing.get_args(bare))
            or (isinstance(value, (list, tuple)) and origin in {list, tuple})
        ):
            return branch
    return branches[0]


def references(
    values: Any, path: KeyPath = (), pattern: re.Pattern[str] = REFERENCE
) -> list[tuple[KeyPath, str]]:
    """Yield every `${...}` in the strings of `values`: its place, and the text in the braces."""
    if isinstance(values, str):
        return [(path, inner) for inner in pattern.findall(values)]
    if isinstance(values, dict):
        items: Iterable[tuple[str | int, Any]] = values.items()
    else:
        items = enumerate(values) if isinstance(values, (list, tuple)) else ()
    return [hit for key, value in items for hit in references(value, (*path, key), pattern)]
