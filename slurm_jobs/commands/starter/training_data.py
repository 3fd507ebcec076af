"""Data to train on, as `init` finds them: a manifest, a folder of images, or a set in a list."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.units import number_of
from slurm_jobs.base.written_values import printable
from slurm_jobs.commands.spec_reading import header_sizes
from slurm_jobs.commands.spec_reading.disk_files import disk_files
from slurm_jobs.commands.starter import data_inspection as data_files
from slurm_jobs.commands.starter.images import image_folder
from slurm_jobs.commands.starter.images.archive_members import archive_note
from slurm_jobs.commands.starter.images.image_root import find_image_root
from slurm_jobs.commands.starter.listed_data import listed_data
from slurm_jobs.commands.starter.starter_facts import Data
from slurm_jobs.formats.configs.stages import Columns
from slurm_jobs.formats.expand import literal_path
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.row_sizes import RowSize, measure, pick_rows, spread
from slurm_jobs.spec.checks.data.manifests import unreadable

_NO_PILLOW = "image sizes were not read: this Python has no Pillow (slurm-jobs[train] brings it)"
_ONLY_NAMED = "other files there are read only if a row names them"
_MEASURED = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
"""Suffixes of formats whose header has the size; the job measures others."""
_MOST_CLASSES = 3
"""Names of folders that are shown."""


@dataclass(kw_only=True, slots=True)
class FoundData:
    """Data to train on, with what `init` writes and prints about them."""

    data: Data
    texts: dict[str, bytes] = field(default_factory=dict)
    """Manifests to write, by name."""
    sizes: list[RowSize] = field(default_factory=list)
    """Sizes of some rows."""
    notes: list[str] = field(default_factory=list)
    name: str = ""
    """Name of the data set in a list; empty outside of one."""
    proportion: Mapping[str, Any] = field(default_factory=dict)
    """Its `repeat` or `num_samples` there."""


class TrainingDataSearch:
    """Search for the data that a path means."""

    def __init__(
        self,
        folder: Path,
        name: str,
        image_root: Path | None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        """Remember what is known of the data before they are found.

        Args:
            folder: Folder of the spec.
            name: Name of the spec.
            image_root: Folder of images that the user named.
            columns: Names of columns by the keys of `columns`, if another tool's file gives them.
        """
        self._folder = folder
        self._name = name
        self._image_root = image_root
        self._columns = dict(columns or {})

    @property
    def _options(self) -> RowOptions:
        return RowOptions(columns=Columns(**self._columns, ignore=()))

    def search(self, path: Path) -> FoundData:
        """Return the data at a path.

        Raises:
            InputError: they cannot be read, or are of no form that can be trained on.
        """
        if data_files.is_image_folder(path):
            manifest, held_out = image_folder.metadata_files(path)
            if manifest is None or data_files.captions_win(path, manifest):
                return self._images(path)
            found = self._manifest(manifest)
            found.notes.insert(0, f"data: {manifest}, the list of {path}; {_ONLY_NAMED}")
            self._evaluate(found, held_out)
            return found
        listed = listed_data(path)
        if listed is None or listed.manifest is None:
            return self._rows(path)
        self._image_root = self._image_root or listed.image_root
        self._columns |= listed.columns
        found = self._rows(listed.manifest)
        found.notes.insert(0, f"data set {listed.name} of {path}")
        found.name, found.proportion = listed.name, listed.proportion
        return found

    def _images(self, path: Path) -> FoundData:
        """Return the images of a folder with their words, as manifests to write."""
        if self._image_root is not None:
            message = f"--image-root is for a manifest, and {path} is a folder of images"
            raise InputError(message)
        images = image_folder.read_image_folder(path)
        num_rows, manifest = len(images.train.files), f"{self._name}.jsonl"
        root = as_named(path, self._folder)
        found = FoundData(data=Data(manifest=manifest, image_root=root, num_rows=num_rows))
        found.texts[manifest] = images.train.manifest(path).encode()
        texts_of = _texts_of(images.classes)
        found.notes.append(f"data: {number_of('image', num_rows)} of {path}{texts_of}")
        if images.evaluation is not None:
            held_out = f"{self._name}-heldout.jsonl"
            found.data = replace(found.data, evaluation=held_out)
            found.texts[held_out] = images.evaluation.manifest(path).encode()
            number = number_of("image", len(images.evaluation.files))
            found.notes.append(f"evaluation: {number}")
        found.sizes, unread = _row_sizes(images.train)
        found.notes += [*images.notes, *unread]
        return found

    def _rows(self, path: Path) -> FoundData:
        """Return a manifest, or the split of a table for training, with its split to evaluate."""
        found = self._manifest(path)
        data, line = found.data, f"data: {path}; its rows were not counted"
        if data.num_rows is not None:
            about = "" if data.is_exact or data.num_rows == 1 else "about "
            line = f"data: {path}, {about}{number_of('row', data.num_rows)}"
        if data_files.holds_tars(path):
            line += " (WebDataset tars)"
        elif path.is_dir():
            line += f", from its table; {_ONLY_NAMED}"
            note = archive_note(path)
            found.notes += [] if note is None else [note]
        found.notes.insert(0, line)
        column = data_files.class_column_of(path)
        if column is not None and "text" not in self._columns:
            found.data = replace(data, columns={"text": column, **self._columns})
            found.notes.append(f"the names of the classes in `{column}` are the answers")
        self._evaluate(found, data_files.held_out_split(path))
        return found

    def _manifest(self, path: Path) -> FoundData:
        data = data_files.inspect_data(path, as_named=as_named(path, self._folder))
        _refuse_unreadable(path, "train on", self._options)
        found = FoundData(data=replace(data, columns=self._columns))
        self._measure_rows(found, path)
        return found

    def _evaluate(self, found: FoundData, held_out: Path | None) -> None:
        """Add a manifest to evaluate, after the line that names the data."""
        if held_out is not None:
            _refuse_unreadable(held_out, "evaluate on", self._options)
            found.data = replace(found.data, evaluation=as_named(held_out, self._folder))
            found.notes.insert(1, f"evaluation: {held_out}")

    def _measure_rows(self, found: FoundData, manifest: Path) -> None:
        """Find the folder of the images, and the sizes of the first rows."""
        files, manifest = disk_files(), data_files.expanded(manifest).absolute()
        rows = [row for row in files.first_rows(str(manifest), self._options) if not row.problem]
        has_images = any(row.images for row in rows)
        root, image_root = files.image_root_of(str(manifest)), self._image_root
        if image_root is None:
            image_root = find_image_root(Path(root), rows, manifest_name=manifest.stem)
            if image_root is not None:
                shown = printable(str(image_root.resolve()))
                found.notes.append(f"image_root: {shown}, where the images of the rows are")
        if image_root is not None:
            named = as_named(image_root, self._folder)
            found.data = replace(found.data, image_root=named)
            root = str(data_files.expanded(image_root).absolute())
        if has_images and not header_sizes.can_read_sizes():
            found.notes.append(_NO_PILLOW)
            return
        most = header_sizes.MAX_HEADERS
        picked = pick_rows(rows, most)
        measured: list[RowSize] = []
        unread = []
        for row in picked:
            size = measure(row, lambda image: header_sizes.size_of(image, root), most=most)
            if size is None:
                unread.append(row)
            else:
                measured.append(size)
        if unread:
            found.notes.append(
                f"the images of {len(unread):,} of {len(picked):,} rows could not be measured; the "
                f"first is {unread[0].origin}: {printable(unread[0].images[0].value)}"
            )
        is_known = not has_images or any(row.images for row in measured)
        found.sizes = measured if is_known else []


def _texts_of(classes: Sequence[str]) -> str:
    """Return what the texts of a folder's images are."""
    if not classes:
        return " with their words"
    names = ", ".join(printable(name) for name in classes[:_MOST_CLASSES])
    more = ", ..." if len(classes) > _MOST_CLASSES else ""
    return f"; their texts are the names of their folders ({names}{more})"


def _refuse_unreadable(manifest: Path, verb: str, options: RowOptions) -> None:
    """Raise InputError for content that no change of the spec makes readable."""
    problem = unreadable(str(manifest.absolute()), verb, disk_files(), options)
    if problem:
        message = f"{manifest}{problem}"
        raise InputError(message)


def _row_sizes(rows: image_folder.Rows) -> tuple[list[RowSize], list[str]]:
    """Return the sizes of at most 1,000 rows, and notes on unreadable images."""
    if not header_sizes.can_read_sizes():
        return [], [_NO_PILLOW]
    measured, unread = [], []
    places = spread(len(rows.files), header_sizes.MAX_HEADERS)
    for file, words in ((rows.files[place], rows.words[place]) for place in places):
        size = header_sizes.read_size(file)
        if size is None:
            unread.append(file)
        else:
            measured.append(RowSize(images=(size,), num_text_bytes=len(words.encode())))
    if not unread:
        return measured, []
    first = printable(str(unread[0]))
    if not measured and all(file.suffix.lower() in _MEASURED for file in unread):
        note = (
            f"no image could be opened: {number_of('file', len(unread))} tried, the first is "
            f"{first}; a run would reject these rows, so check the files first"
        )
        return [], [note]
    tried = len(measured) + len(unread)
    note = f"{len(unread):,} of {tried:,} images could not be measured; the first is {first}"
    return measured, [note]


def as_named(path: Path, folder: Path) -> str:
    """Return the path relative to the spec's folder if both are below the working folder.

    Otherwise it is absolute.
    """
    whole = data_files.expanded(path).absolute()
    here = Path.cwd()
    if whole.is_relative_to(here) and folder.absolute().is_relative_to(here):
        return literal_path(os.path.relpath(whole, folder.absolute()))
    return literal_path(str(whole))
