"""Values of a group of members, as the mapping of a row that other formats have, too.

| member | value |
| --- | --- |
| `KEY.jpg`, `.png`, `.webp`, ... or `KEY.0.jpg`, `KEY.1.jpg`, ... | the pictures, as bytes |
| `KEY.txt` | `text` |
| `KEY.json` | its keys, or `json` if it is no object |
| `KEY.cls` | `cls` |
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from slurm_jobs.formats.manifests.bounded_lines import MAX_ROW_BYTES
from slurm_jobs.formats.manifests.keys import PICTURE_NAME, BadRowError
from slurm_jobs.formats.manifests.messages import ManifestRow, RowOrigin, bad_row
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.table_set import FieldMap
from slurm_jobs.formats.manifests.tars.tar_groups import TarGroup
from slurm_jobs.formats.manifests.values import TOO_DEEP, read_row

ReadMember = Callable[[tarfile.TarInfo], bytes]

MAX_GROUP_BYTES = 1 << 30
"""Limit of a row's members, pictures included."""
_LISTS = frozenset({"csv", "tsv", "jsonl", "parquet", "arrow"})
_PLACED = re.compile(r"(?:(?:img|image)[_-]?)?(?P<place>\d{1,6})(?P<suffix>\.\w+)")
_KEYS_OF_PICTURES = ("image", "image_bytes")
_KEYS_OF_TEXTS: Mapping[str, Sequence[str]] = {
    "json": ("json",),
    "txt": ("text", "caption", "response", "completion"),
    "cls": ("cls", "class"),
}
"""Keys of one meaning each; the first that the JSON does not have is used."""


def is_text(extension: str) -> bool:
    """Check whether a member of this extension has words of its row."""
    return extension.rpartition(".")[2] in _KEYS_OF_TEXTS


def group_row(
    origin: RowOrigin,
    group: TarGroup,
    read: ReadMember,
    options: RowOptions,
    fields: FieldMap | None,
) -> ManifestRow:
    """Return the row of a group; one that cannot be used has its `problem`.

    Args:
        origin: place of the row.
        group: members of the row's key.
        read: reads a member.
        options: options for rows.
        fields: where the values are; None where the extensions say it.
    """
    try:
        _check_members(group, options.columns.ignore)
        if fields is None:
            value = _plain(group, read, options.columns.ignore)
        else:
            value = _mapped(group, read, fields)
    except BadRowError as error:
        return replace(bad_row(origin, str(error), source=group.key), keys=tuple(group.members))
    except RecursionError:
        return bad_row(origin, TOO_DEEP, source=group.key)
    row = read_row(origin, {"id": group.key, **value}, options)
    return row if row.source else replace(row, source=group.key)


def _check_members(group: TarGroup, ignore: Collection[str]) -> None:
    if group.repeated:
        message = f"two members are called {group.repeated[0]}; keep one of them"
        raise BadRowError(message)
    read = [info for name, info in group.members.items() if name not in ignore]
    for info in read:
        if not info.isreg() or info.issparse():
            message = f"`{info.name}` is a link, a sparse file or no file; pack the file itself"
            raise BadRowError(message)
    num_bytes = sum(info.size for info in read)
    if num_bytes > MAX_GROUP_BYTES:
        message = f"{num_bytes:,} bytes; rows of more than {MAX_GROUP_BYTES:,} are not read"
        raise BadRowError(message)


def _plain(group: TarGroup, read: ReadMember, ignore: Collection[str]) -> dict[str, Any]:
    """Return the values of members whose extensions say what they are.

    Raises:
        BadRowError: a member is not read, or its content is broken.
    """
    members = {name: group.members[name] for name in group.members if name not in ignore}
    # Their names tell the reader of rows that a video was ignored.
    value: dict[str, Any] = {
        name: member.name for name, member in group.members.items() if name in ignore
    }
    pictures = _picture_names(group.key, members)
    texts = [name for name in _KEYS_OF_TEXTS if name in members]
    unread = next((name for name in members if name not in (*pictures, *texts)), None)
    if unread is not None:
        remedy = f"set `columns: {{ignore: [{unread}]}}` to leave it out"
        if unread in _LISTS:
            remedy = "unpack a list of rows, and name it as the manifest"
        message = f"`{members[unread].name}` is not read; {remedy}"
        raise BadRowError(message)
    if not texts:
        message = (
            f"{group.key} has no text: neither {group.key}.txt nor {group.key}.json; if another "
            "file has the texts, name that file as the manifest"
        )
        raise BadRowError(message)
    for name in texts:
        content = (_json_of if name == "json" else _text_of)(members[name], read)
        if isinstance(content, dict):
            value |= content
        else:
            value[_free_key(_KEYS_OF_TEXTS[name], value)] = content
    shown: list[dict[str, Any]] = [{"bytes": read(members[name])} for name in pictures]
    if len(shown) > 1:  # compared with names in the JSON; packers call a single one as they like
        for name, picture in zip(pictures, shown, strict=True):
            picture["path"] = members[name].name
    if shown:
        value[_free_key(_KEYS_OF_PICTURES, value)] = shown
    return value


def _picture_names(key: str, members: Collection[str]) -> list[str]:
    """Return the extensions of the pictures, in their order.

    Raises:
        BadRowError: their order is not known.
    """
    names = [name for name in members if PICTURE_NAME.fullmatch(f".{name}")]
    places = {}
    for name in members:
        match = _PLACED.fullmatch(name)
        if match and PICTURE_NAME.fullmatch(match["suffix"]):
            places[name] = int(match["place"])
    if len(names) + bool(places) > 1 or len(set(places.values())) < len(places):
        first, second = [*names, *places][:2]
        message = (
            f"{key} has the pictures `{first}` and `{second}`, whose order is not known; set "
            f"`columns: {{ignore: [{second}]}}`, or call them {key}.0.jpg, {key}.1.jpg, ..."
        )
        raise BadRowError(message)
    return names or sorted(places, key=lambda name: places[name])


def _free_key(keys: Sequence[str], value: Mapping[str, Any]) -> str:
    return next((key for key in keys if key not in value), keys[-1])


def _mapped(group: TarGroup, read: ReadMember, fields: FieldMap) -> dict[str, Any]:
    """Return the values at the places of a field map; other members are not read.

    Raises:
        BadRowError: a place does not exist, or its content is broken.
    """
    value: dict[str, Any] = {}
    for name, places in fields.items():
        found = [place for place in places if place[0] in group.members]
        if not found:
            wanted = " or ".join(f"{group.key}.{place[0]}" for place in places)
            message = f"there is no member {wanted}, which `field_map` names"
            raise BadRowError(message)
        item = _at_place(group.members[found[0][0]], found[0], read)
        value["answer" if name == "answers" and isinstance(item, str) else name] = item
    return value


def _at_place(member: tarfile.TarInfo, place: Sequence[str], read: ReadMember) -> Any:
    extension, *keys = place
    if not keys and PICTURE_NAME.fullmatch(f".{extension.rpartition('.')[2]}"):
        return [{"bytes": read(member)}]
    if not is_text(extension):
        message = f"`{member.name}`, which `field_map` names, is neither a picture nor a text"
        raise BadRowError(message)
    if extension.rpartition(".")[2] != "json":
        return _text_of(member, read)
    item = _json_of(member, read)
    for key in keys:
        try:
            item = item[int(key)] if isinstance(item, list) else item[key]
        except (LookupError, ValueError, TypeError) as error:
            message = f"`{member.name}` has no `{key}`, which `field_map` names"
            raise BadRowError(message) from error
    return item


def _text_of(member: tarfile.TarInfo, read: ReadMember) -> str:
    """Return a text without the line break at its end."""
    if member.size > MAX_ROW_BYTES:
        message = f"`{member.name}` has {member.size:,} bytes; {MAX_ROW_BYTES:,} are read"
        raise BadRowError(message)
    try:
        text = read(member).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"`{member.name}` is not UTF-8 ({error.reason} at byte {error.start})"
        raise BadRowError(message) from error
    return text.removesuffix("\n").removesuffix("\r")


def _json_of(member: tarfile.TarInfo, read: ReadMember) -> Any:
    text = _text_of(member, read)
    try:
        return json.loads(text)
    except ValueError as error:
        message = f"`{member.name}` is no valid JSON ({error})"
        raise BadRowError(message) from error
