"""Check of format, columns and first rows of manifests; other rows are left to the job. PURE."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.configs.stages import Columns
from slurm_jobs.formats.file_signatures import HEAD_BYTES
from slurm_jobs.formats.manifests.foreign_files import foreign_format, unknown_format
from slurm_jobs.formats.manifests.image_paths import strange_name
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.formats.manifests.row_options import RowOptions, missing_columns
from slurm_jobs.formats.manifests.text import MAX_BYTES, MAX_ROWS
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.graph import preprocess_of
from slurm_jobs.spec.marked_paths import MarkedString
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.spec_files import Beginning, Files
from slurm_jobs.spec.value_types import BUILTIN_STAGES
from slurm_jobs.spec.yaml.document import KeyPath, path_text

MANIFESTS: dict[KeyPath, str] = {
    ("config", "manifest"): "preprocess",
    ("config", "evaluate", "manifest"): "evaluate on",
}
"""Places where built-in stages name a manifest, or several, and the purpose of their rows."""

_BLANKS = " \t\r\n\v\f"
"""Characters that the reader of rows treats as blank."""

_OTHER_FORMATS = ("{", "[", "PAR1", "\ufffd")
"""First bytes of manifests that are not CSV: JSON, or a table that this Python cannot read (the
last stands for bytes that are not UTF-8)."""


_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"{\0", b"\0{", b"[\0", b"\0[")
"""First bytes of text in UTF-16: its mark, or JSON without one."""

_LONGEST_SCHEME = 20
"""Number of characters at the start of a URL that contain its `://`."""
_MAX_REASONS = 3
_SPREAD_OUT = (
    ". It looks like one JSON value over several lines: write one row on each line, or a list "
    "`[...]`"
)

_SAVE_AS_UTF_8 = "save the manifest as UTF-8"


def manifest_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield unusable manifests, each at its line; of a long one only the first line is read."""
    for item in named_rows(spec):
        verb = MANIFESTS[(*holder_of(item.path), "manifest")[2:]]
        options = row_options(spec, item.path)
        wrong = (
            unreadable(item.resolved, verb, spec.files, options)
            or _wrong_columns(item.resolved, spec.files, options)
            or _wrong_rows(item.resolved, spec.files, options)
        )
        if wrong:
            yield spec.problem(item.path, f"{item.resolved}{wrong}")


def named_rows(spec: CheckedSpec, stage: str | None = None) -> list[MarkedString]:
    """Return the manifests that built-in stages name, or that `stage` does, in their order."""
    return [
        item
        for item in spec.expanded
        if item.given and is_manifest(item.path) and stage in (None, item.path[1])
    ]


def is_manifest(place: KeyPath) -> bool:
    """Check whether a manifest is named at this place: alone, or in a list of them."""
    within = place[len(holder_of(place)) + 2 :]
    return place[2:] in MANIFESTS or (is_listed(place) and within in {(), ("path",)})


def is_listed(place: KeyPath) -> bool:
    """Check whether a place is in a list of manifests."""
    return len(holder_of(place)) < len(place) - 1


def holder_of(place: KeyPath) -> KeyPath:
    """Return the place of the config that names the manifest at `place`, alone or in a list."""
    for known in MANIFESTS:
        if place[2 : len(known) + 2] == known:
            return place[: len(known) + 1]
    return place[:-1]


def image_root(place: KeyPath, manifest: str, resolved: Mapping[KeyPath, str], files: Files) -> str:
    """Return the folder that the image paths of the manifest at `place` start from.

    Args:
        place: where it is named.
        manifest: its path.
        resolved: all paths of the spec, by their places.
        files: access to files.
    """
    for holder in (place[:-1], holder_of(place)):
        if root := resolved.get((*holder, "image_root")):
            return root
    return files.image_root_of(manifest)


def has_all_rows(manifest: str, rows: Sequence[ManifestRow], files: Files) -> bool:
    """Check whether the first rows of a manifest are all of its rows; False if unknown."""
    folder, _, name = manifest.rpartition("/")
    num_bytes = (files.sizes_in(folder or "/") or {}).get(name)
    return len(rows) < MAX_ROWS and num_bytes is not None and num_bytes <= MAX_BYTES


def _wrong_rows(manifest: str, files: Files, options: RowOptions) -> str | None:
    """Return a message that no row can be used, or that no row has a column of the config."""
    rows = files.first_rows(manifest, options)
    keys = dict.fromkeys(key for row in rows for key in row.keys)
    missing = missing_columns(options.columns, keys) if keys else None
    if missing:
        return f": {missing}"
    reasons: dict[str, list[str]] = {}
    for row in rows:
        problem = row_problem(row)
        if problem is None:
            return None
        reasons.setdefault(problem, []).append(f"{row.origin}: {problem}")
    if not rows:
        return None
    line = (files.first_line(manifest) or "").strip()
    hint = _SPREAD_OUT if line == "{" and len(rows) > 1 else ""
    if len(rows) == 1:
        return f": the first row, {rows[0].origin}, cannot be used: {next(iter(reasons))}{hint}"
    lines = reason_lines(reasons, _MAX_REASONS)
    return f": none of the first {len(rows):,} rows can be used{hint}:{lines}"


def reason_lines(reasons: Mapping[str, Sequence[str]], most: int) -> str:
    """Return a line for each of the most common reasons: its first message, and the count."""
    common = sorted(reasons.values(), key=len, reverse=True)
    lines = [
        rows[0] + (f" (the first of {len(rows):,} rows)" if len(rows) > 1 else "")
        for rows in common[:most]
    ]
    if num_others := len(common[most:]):
        lines.append(f"{num_others} other reason{'s' if num_others > 1 else ''}")
    return "".join(f"\n  {line}" for line in lines)


def row_problem(row: ManifestRow) -> str | None:
    """Return why a row cannot be used, as far as its text shows; None if it may be usable."""
    if row.problem:
        return row.problem
    if row.nothing_learned is not None:
        return row.nothing_learned
    for image in row.images:
        is_url = image.data is None and "://" in image.value[:_LONGEST_SCHEME]
        problem = image.problem or (strange_name(image.value)[0] if is_url else None)
        if problem:
            return f"its image cannot be read: {problem}"
    return None


def row_options(spec: CheckedSpec, place: KeyPath) -> RowOptions:
    """Return the options of the manifest at `place`, with its stage's `columns` that are valid."""
    name = str(place[1])
    config = spec.views[name].config or {}
    given = None
    for path in (place[:-1], holder_of(place)):
        holder = value_at(config, path[3:])
        if given is None and isinstance(holder, Mapping):
            given = holder.get("columns")
    if given is None and "evaluate" in place:
        source = preprocess_of(spec.views, name, config.get("dataset"))
        given = (spec.views[source].config or {}).get("columns") if source else None
    values = given if isinstance(given, Mapping) else {}
    names = {
        field.name: values[field.name]
        for field in fields(Columns)
        if isinstance(values.get(field.name), str) and field.name != "ignore"
    }
    ignore = values.get("ignore")
    ignored = [key for key in ignore if isinstance(key, str)] if isinstance(ignore, list) else []
    return RowOptions(columns=Columns(**names, ignore=tuple(ignored)))


def unreadable(manifest: str, verb: str, files: Files, options: RowOptions) -> str | None:
    """Return why rows cannot be read, whatever columns the config names; None if they may be.

    The message follows the manifest's name.
    """
    wrong = _wrong_content(manifest, verb, files)
    if wrong or _wrong_columns(manifest, files, options):
        return wrong
    damage = files.manifest_damage(manifest, options)
    rows = files.first_rows(manifest, options)
    is_json = not rows or any(row.is_json for row in rows)
    return damage or (None if is_json else _wrong_rows(manifest, files, options))


def _wrong_content(manifest: str, verb: str, files: Files) -> str | None:
    no_rows = f" has no rows; there is nothing to {verb}"
    table = files.table(manifest)
    if table is not None:
        return table.problem or (None if table.has_rows else no_rows)
    is_csv = manifest.lower().endswith(".csv")
    beginning = files.beginning(manifest)
    foreign = foreign_format(manifest, beginning.data[:HEAD_BYTES]) if beginning else None
    if foreign:
        return f": {foreign}"
    wrong = _wrong_encoding(beginning, is_csv=is_csv) if beginning else None
    if wrong:
        return wrong
    text, line = files.small_text(manifest), files.first_line(manifest)
    if is_csv:
        with contextlib.suppress(csv.Error):
            records = csv.reader(io.StringIO(text or "", newline=""))
            if text is not None and sum(1 for record in records if record) < 2:
                return no_rows
        return None
    if text is not None and "".join(text.split()) in {"", "[]"}:
        return no_rows
    start = ((text if text is not None else line) or "").lstrip(_BLANKS)
    if not start or start.startswith(_OTHER_FORMATS):
        return None
    return f": {unknown_format(manifest, start[:HEAD_BYTES].encode())}"


def _wrong_columns(manifest: str, files: Files, options: RowOptions) -> str | None:
    table = files.table(manifest)
    if table is not None:
        has_columns = not table.problem and table.names
        wrong = options.wrong_columns(table.names) if has_columns else None
        return f": {wrong}" if wrong else None
    line, is_small = files.first_line(manifest), files.small_text(manifest) is not None
    if not manifest.lower().endswith(".csv") or line is None:
        return None
    with contextlib.suppress(csv.Error):
        if is_small or line.strip():  # all of it may be blank
            wrong = options.wrong_columns(next(csv.reader([line], strict=True), []))
            return f":1: {wrong}" if wrong else None
    return None


def _wrong_encoding(beginning: Beginning, *, is_csv: bool) -> str | None:
    """Return a message with the line that is not UTF-8; in JSON lines that is a bad row instead."""
    data = beginning.data
    if data.startswith(_UTF_16):
        return f":1: not UTF-8 (it begins like UTF-16); {_SAVE_AS_UTF_8}"
    if not is_csv and not data.lstrip(_BLANKS.encode()).startswith(b"["):
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=beginning.is_whole)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{data[error.start]:02x}: {error.reason}"
        return f":{line}: not UTF-8 ({byte}); {_SAVE_AS_UTF_8}"
    return None


def named_manifests(spec: RunSpec) -> list[tuple[str, str]]:
    """Return the dotted paths at which built-in stages name manifests, and the manifests."""
    manifests = []
    for name, stage in spec.stages.items():
        for place in MANIFESTS if stage.run in BUILTIN_STAGES else ():
            value = value_at(stage.config, place[1:])
            for number, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
                path = item.get("path") if isinstance(item, Mapping) else item
                if isinstance(path, str):
                    where = place if number is None else (*place, number)
                    manifests.append((path_text(("stages", name, *where)), path))
    return manifests


def value_at(values: object, path: KeyPath) -> object:
    """Return the value at a path in plain values; None if there is none."""
    for key in path:
        if isinstance(values, Mapping):
            values = values.get(key)
        elif isinstance(values, (list, tuple)) and isinstance(key, int) and key < len(values):
            values = values[key]
        else:
            return None
    return values
