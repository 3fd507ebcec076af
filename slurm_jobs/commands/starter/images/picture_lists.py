"""Lists in a folder that name its pictures: manifests, metadata and annotations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.formats.manifests.containers.json_container import (
    NoContainerError,
    find_container,
)
from slurm_jobs.formats.manifests.splits import split_and_rest

_SUFFIXES = frozenset({".json", ".jsonl", ".csv", ".tsv", ".parquet"})
_MOST_LISTS = 50
"""Lists that are opened: a folder may have one for each folder of pictures."""
_HEAD_BYTES = 1_000_000
"""Beginning of a text that is read: some thousand rows."""
_HEAD_ROWS = 1_000
_SHARE = 0.5
"""A list must name more than this share of the pictures: with fewer, most would have no text."""
_ENOUGH = 250
"""Pictures that are enough in any case, as the part that is read may have few, long rows."""
_BETWEEN = re.compile(r"""["',;|:\t\r\n\[\]{}]+""")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
"""Character that is not ASCII, in JSON."""


def lists_of_pictures(lists: Iterable[Path], images: Sequence[Path]) -> list[Path]:
    """Return the lists that name most of the pictures, those of a split for training first.

    A list names a picture by its path, its file name or its stem (`ISIC_0027419`), in upper or
    lower case. A stem of digits or letters alone counts only if one picture has it, because it
    may be an index or a word. COCO's captions and VQA's files count in any case. Files named
    after a picture, such as `cat.json` for `cat.jpg`, are read last, because there may be one
    for each picture.
    """
    names = {image.name.lower() for image in images}
    stems = Counter(image.stem.lower() for image in images)
    folders = {image.parent.name.lower() for image in images}
    clear_stems = {
        stem
        for stem in stems.keys() - folders
        if stems[stem] == 1 or not (stem.isdecimal() or stem.isalpha())
    }
    readable = [file for file in lists if file.suffix.lower() in _SUFFIXES]
    readable.sort(key=lambda file: file.stem.lower() in stems or file.stem.lower() in names)
    lists_with_pictures = []
    for file in readable[:_MOST_LISTS]:
        values = {re.split(r"[\\/]", value)[-1].strip().lower() for value in _values(file)}
        named = (values & clear_stems) | {PurePath(name).stem for name in values & names}
        num_named = sum(stems[stem] for stem in named)
        if num_named > min(_SHARE * len(images), _ENOUGH) or _is_container(file):
            lists_with_pictures.append(file)
    return sorted(
        lists_with_pictures, key=lambda file: (split_and_rest(file.stem)[0] != "train", file)
    )


def _is_container(file: Path) -> bool:
    """Check whether its rows are joined from lists, and name pictures by numbers alone (VQA v2)."""
    with suppress(NoContainerError, OSError):
        return find_container(file) is not None
    return False


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
    try:
        with open_regular(file) as stream:
            table = pq.ParquetFile(stream)
            texts = []
            for field in table.schema_arrow:
                is_dictionary = pa.types.is_dictionary(field.type)
                kind = field.type.value_type if is_dictionary else field.type
                if kind in {pa.string(), pa.large_string()}:
                    texts.append(field.name)
            batch = next(table.iter_batches(batch_size=_HEAD_ROWS, columns=texts), None)
            for column in [] if batch is None else batch.columns:
                values += [value for value in column.to_pylist() if value]
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return []
    return values
