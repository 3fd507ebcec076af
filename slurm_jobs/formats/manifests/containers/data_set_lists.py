"""Lists of data sets that other tools read: JSON objects from names to files and their columns.

| tool | file | keys of a data set |
| --- | --- | --- |
| LLaMA-Factory | `dataset_info.json` | `file_name`, `formatting`, `columns`, `tags` |
| InternVL | a meta file | `annotation`, `root`, `repeat_time` |
| NeMo Automodel | a meta file | `file_name`, `media_dir`, `columns`, `tags`, `sample_ratio` |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.formats.manifests.keys import looks_like_picture

NAME_OF_LIST = "dataset_info.json"
_MAX_BYTES = 4 << 20
_FILE_KEYS = ("file_name", "annotation")
_ROOT_KEYS = ("root", "media_dir")
_PROPORTION_KEYS = {"repeat_time": "repeat", "sample_ratio": "repeat", "num_samples": "num_samples"}
"""Their words for shares of the rows, and the keys of ours."""
_ELSEWHERE = ("hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")
_NO_EFFECT = frozenset({"formatting", "length", "data_augment", "split", "max_dynamic_patch"})
"""Keys without an effect on rows: `split` names one of a file, and `formatting` is seen in it."""
_COLUMNS = {
    "messages": "messages",
    "images": "image",
    "image": "image",
    "system": "system",
    "prompt": "prompt",
    "response": "text",
}
"""Their words for columns, and the keys of ours."""
_SAME_NAMES = {"query": "input", "history": "history"}
"""Columns that are read under this name only."""
_TAGS: Mapping[str, tuple[str, ...]] = {
    "role_tag": ("role", "from"),
    "content_tag": ("content", "value"),
    "user_tag": ("user", "human"),
    "assistant_tag": ("assistant", "gpt"),
    "system_tag": ("system",),
}
"""Names that turns may have for their parts."""
_ROLES_NOT_READ = ("observation_tag", "function_tag")
"""Tags of turns that are refused where they occur; naming them has no effect."""
_MAX_FOLDERS_ABOVE = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedSet:
    """A data set of such a list."""

    name: str
    manifest: Path | None = None
    """None: it is not a file here."""
    image_root: Path | None = None
    """Folder of its images; None: that of the manifest."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Names of columns by our keys, also of those that are known by their names: rows may have
    another column of the same meaning."""
    proportion: Mapping[str, Any] = field(default_factory=dict)
    """`repeat` or `num_samples`, if it takes only some rows, or rows several times."""
    problem: str = ""
    """Reason why it cannot be read."""


def read_data_sets(path: Path) -> list[ListedSet] | None:
    """Return the data sets of a list, in its order; None if the file is no such list.

    Rows by their ids may have the same keys, but name pictures.

    Raises:
        OSError: it cannot be read.
    """
    if path.suffix.lower() != ".json" or path.stat().st_size > _MAX_BYTES:
        return None
    try:
        values = json.loads(read_bytes(path))
    except (ValueError, RecursionError):
        return None
    if not values or not isinstance(values, dict) or not all(map(_is_listed, values.values())):
        return None
    return [_listed(path.parent, *item) for item in values.items()]


def _is_listed(values: Any) -> bool:
    if not isinstance(values, dict) or {*_FILE_KEYS, *_ELSEWHERE}.isdisjoint(values):
        return False
    return not any(looks_like_picture(values.get(key)) for key in _FILE_KEYS)


def _listed(folder: Path, name: str, values: Mapping[str, Any]) -> ListedSet:
    given = next((values[key] for key in _FILE_KEYS if key in values), None)
    if given is None:
        return ListedSet(name=name, problem="it is on a hub: download it, and name its folder")
    manifest = _place(folder, given)
    if manifest is None:
        return ListedSet(name=name, problem=f"its file {given} does not exist here")
    named = {key: values.get(key) or {} for key in ("columns", "tags")}
    for key, names in named.items():
        is_map = isinstance(names, dict)
        if not is_map or any(not isinstance(n, str | None) for n in names.values()):
            return ListedSet(
                name=name, problem=f"its `{key}` is {names!r}, and has to map keys to names"
            )
    problems = [*_unknown_keys(values), *_tag_problems(named["tags"])]
    columns: dict[str, str] = {}
    for key, column in named["columns"].items():
        ours = _COLUMNS.get(key)
        if ours is not None and column is not None:
            columns[ours] = column
        elif column is not None and _SAME_NAMES.get(key) != column:
            problems.append(f"its column `{key}` ({column}) is not read")
    root = next((values[key] for key in _ROOT_KEYS if values.get(key)), None)
    image_root = folder if "file_name" in values else None
    if root is not None:
        image_root = _place(folder, root)
        if image_root is None:
            problems.append(f"its folder {root} does not exist here")
    if image_root == manifest.parent:
        image_root = None
    problems += _proportion_problems(values)
    proportion = {
        ours: values[key]
        for key, ours in _PROPORTION_KEYS.items()
        if values.get(key) is not None and (ours, values[key]) != ("repeat", 1)
    }
    return ListedSet(
        name=name,
        manifest=manifest,
        image_root=image_root,
        columns=columns,
        proportion=proportion,
        problem="; ".join(problems),
    )


def _unknown_keys(values: Mapping[str, Any]) -> list[str]:
    known = {*_FILE_KEYS, *_ROOT_KEYS, *_PROPORTION_KEYS, *_NO_EFFECT, "columns", "tags"}
    unknown = [key for key in values if key not in known and values[key]]
    return [f"its key `{key}` is not read" for key in unknown]


def _proportion_problems(values: Mapping[str, Any]) -> list[str]:
    given = {key: values[key] for key in _PROPORTION_KEYS if values.get(key) is not None}
    return [
        f"its {key} is {value!r}, and not a number above 0"
        for key, value in given.items()
        if not isinstance(value, int | float) or value <= 0
    ]


def _tag_problems(tags: Mapping[str, str | None]) -> list[str]:
    return [
        f"its tag `{tag}` is {name}, and {' or '.join(_TAGS.get(tag, ('none',)))} is read"
        for tag, name in tags.items()
        if tag not in _ROLES_NOT_READ and name is not None and name not in _TAGS.get(tag, ())
    ]


def _place(folder: Path, given: Any) -> Path | None:
    """Return a path of the list, relative to its folder or to one above; None if it is in none.

    InternVL starts from the folder in which the training is started.
    """
    for start in (folder, *list(folder.parents)[:_MAX_FOLDERS_ABOVE]):
        place = start / str(given)
        if place.exists():
            return place
    return None
