"""Metadata of Megatron-Energon about a folder of tars, in its `.nv-meta/`.

`dataset.yaml` has the type of the samples and `field_map`, the member of each of its fields
(`txt`, or `json[result][0]`; after a comma the one to take where that is missing). Members that it
does not name are not read. `split.yaml` has the tars of each split, and what is excluded. Source:
Energon 7, `flavors/webdataset/metadata.py` and `field_access.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.formats.manifests.brace_lists import expand_braces
from slurm_jobs.formats.manifests.table_set import FieldMap, NoTableError, TableFiles

META_FOLDER = ".nv-meta"
_KEYS_OF_TYPES: Mapping[str, Mapping[str, str]] = {
    "CaptioningSample": {"image": "image", "caption": "caption"},
    "OCRSample": {"image": "image", "text": "text"},
    "VQASample": {
        "image": "image",
        "context": "question",
        "answers": "answers",
        "answer_weights": "answer_weights",
    },
}
"""Keys of a row by the fields of a sample, for the types that are read."""
_PLACE = re.compile(r"([^\[\],]+)((?:\[[^\[\]]+\])*)")


def energon_tars(folder: Path) -> dict[str, TableFiles]:
    """Return the tars of a folder that Energon prepared by split; empty for any other folder.

    Raises:
        NoTableError: its samples are made by Python code, or are of a type that is not read.
        OSError: a file cannot be read.
    """
    values = _yaml(folder, "dataset.yaml")
    if values is None:
        return {}
    lists = _yaml(folder, "split.yaml") or _yaml(folder, "split.json")
    if lists is None or not isinstance(lists.get("split_parts"), Mapping):
        message = f": {META_FOLDER}/split.yaml has no `split_parts`; run `energon prepare` again"
        raise NoTableError(message)
    fields, left_out = _fields(values), set(_names(lists.get("exclude")))
    excluded = frozenset(str(folder / name) for name in left_out)
    tables: dict[str, TableFiles] = {}
    for split, names in lists["split_parts"].items():
        files = tuple(_tar(folder, name) for name in _names(names) if name not in left_out)
        if files:
            tables[str(split)] = TableFiles(
                kind="tar", files=files, fields=fields, excluded=excluded
            )
    return tables


def _yaml(folder: Path, name: str) -> Mapping[str, Any] | None:
    import yaml

    try:
        values = yaml.safe_load(read_bytes(folder / META_FOLDER / name))
    except FileNotFoundError:
        return None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        message = f": {META_FOLDER}/{name} is no valid YAML ({error})"
        raise NoTableError(message) from error
    return values if isinstance(values, Mapping) else {}


def _fields(values: Mapping[str, Any]) -> FieldMap:
    """Return the places of the values of a row, by its keys."""
    named = values.get("sample_type", values)
    named = named if isinstance(named, Mapping) else {}
    kind = str(named.get("__class__", "")).replace("Webdataset", "Sample")
    code = next((key for key in ("sample_loader", "cookers") if key in values), None)
    if code is not None or kind == "CrudeSample":
        message = (
            f": {META_FOLDER}/dataset.yaml has samples that Python code makes "
            f"({'a CrudeWebdataset' if code is None else f'`{code}`'}), which is not run; run it "
            "in a stage of your own that writes the rows as JSON lines"
        )
        raise NoTableError(message)
    keys = _KEYS_OF_TYPES.get(kind)
    if keys is None or named.get("__module__") != "megatron.energon":
        message = (
            f": {META_FOLDER}/dataset.yaml has the type {named.get('__module__')}.{kind}, and of "
            f"megatron.energon {', '.join(_KEYS_OF_TYPES)} are read; write the rows as JSON lines"
        )
        raise NoTableError(message)
    fields = values.get("field_map")
    if not isinstance(fields, Mapping) or not fields.keys() <= keys.keys():
        message = (
            f": `field_map` of {META_FOLDER}/dataset.yaml is {fields}, and its keys can be "
            f"{', '.join(keys)}; write rows with others as JSON lines"
        )
        raise NoTableError(message)
    return {keys[field]: _places(str(place)) for field, place in fields.items()}


def _places(text: str) -> list[list[str]]:
    places = []
    for extension, keys in _PLACE.findall(text):
        places.append([extension.strip(), *re.findall(r"\[([^\[\]]+)\]", keys)])
    return places


def _names(names: Any) -> Iterator[str]:
    """Yield the names of a list, in which braces stand for several."""
    for name in names if isinstance(names, list) else []:
        yield from expand_braces(str(name))


def _tar(folder: Path, name: str) -> Path:
    file, is_outside = folder / name, Path(name).is_absolute() or ".." in Path(name).parts
    if is_outside or not file.is_file():
        message = f": {META_FOLDER}/split.yaml lists {name}, which does not exist; copy it again"
        raise NoTableError(message)
    return file
