"""Lists in a folder that name its pictures: manifests, metadata and annotations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from slurm_jobs.commands.starter.folder_files import stems_of
from slurm_jobs.shared.manifests.keys import split_and_rest
from slurm_jobs.shared.regular_files import open_regular

_SUFFIXES = frozenset({".json", ".jsonl", ".csv", ".tsv", ".parquet"})
_MOST_LISTS = 50
"""Lists that are opened: a folder may have one for each picture."""
_HEAD_BYTES = 1_000_000
"""Beginning of a text that is read: some thousand rows."""
_HEAD_ROWS = 1_000
_SHARE = 0.25
"""Share of pictures from which on numbers or words in a list are the stems of pictures."""
_BETWEEN = re.compile(r"""["',;|:\t\r\n\[\]{}]+""")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
"""Character that is not ASCII, in JSON."""


def lists_of_pictures(lists: Iterable[Path], images: Sequence[Path]) -> list[Path]:
    """Return the lists whose first rows name pictures, those of a split for training first.

    A row names a picture by its path, its file name or its stem (`ISIC_0027419`). A stem of digits
    or letters alone may be an index or a word instead. It counts where no other picture has it, and
    many pictures are named like this. A sidecar, as `cat.json` next to `cat.jpg`, is no list.
    """
    names = {image.name for image in images}
    stems = Counter(image.stem for image in images)
    beside = {stem for image in images for stem in stems_of(image)}
    folders = {image.parent.name for image in images}
    found = []
    for file in [file for file in lists if file.suffix.lower() in _SUFFIXES][:_MOST_LISTS]:
        values = {re.split(r"[\\/]", value)[-1].strip() for value in _values(file)}
        in_list = (values & stems.keys()) - folders
        plain = {stem for stem in in_list if stem.isdecimal() or stem.isalpha()}
        named = (in_list - plain) | {PurePath(name).stem for name in values & names}
        unique = {stem for stem in plain if stems[stem] == 1}
        if len(unique) >= _SHARE * len(images):
            named |= unique
        is_sidecar = file.with_suffix("") in beside
        if len(named) > (1 if is_sidecar else 0):
            found.append(file)
    return sorted(found, key=lambda file: (split_and_rest(file.stem)[0] != "train", file))


def _values(file: Path) -> Collection[str]:
    """Return texts of the first rows, of all columns; empty if the file cannot be read."""
    if file.suffix.lower() == ".parquet":
        return _table_values(file)
    with suppress(OSError), open_regular(file) as stream:
        text = stream.read(_HEAD_BYTES).decode("utf-8-sig", errors="replace")
        return _BETWEEN.split(_ESCAPED.sub(lambda match: chr(int(match[1], 16)), text))
    return []


def _table_values(file: Path) -> list[str]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return []
    values: list[str] = []
    with suppress(pa.ArrowException, OSError), open_regular(file) as stream:
        table = pq.ParquetFile(stream)
        kinds = {field.name: field.type for field in table.schema_arrow}
        texts = [name for name, kind in kinds.items() if kind in {pa.string(), pa.large_string()}]
        batch = next(table.iter_batches(batch_size=_HEAD_ROWS, columns=texts), None)
        for column in [] if batch is None else batch.columns:
            values += [value for value in column.to_pylist() if value]
    return values
