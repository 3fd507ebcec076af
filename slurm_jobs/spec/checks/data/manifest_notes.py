"""Notes on manifests: unknown keys in their first rows, and splits that are mixed in them. PURE."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.manifests.keys import normal
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.formats.manifests.row_notes import RowNote, note_text
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.splits import split_and_rest, split_of, split_of_column
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.checks.data.manifests import has_all_rows, named_rows, row_options
from slurm_jobs.spec.spec_files import Files

_LONGEST_PATH = 1000


_MAX_KEYS = 10


def manifest_notes(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield unknown keys of the first rows, and splits that are mixed in them."""
    for item in named_rows(spec):
        options = row_options(spec, item.path)
        rows = spec.files.first_rows(item.resolved, options)
        notes = [_unknown_ignored(item.resolved, rows, spec.files, options)]
        is_evaluated = "evaluate" in item.path
        notes.append(_other_splits(item.resolved, spec))
        notes.append(None if is_evaluated else _held_out_split(item.resolved, spec))
        notes.append(_missing_files(item.resolved, spec))
        ignored = Counter(key for row in rows for key in row.ignored)
        if ignored:
            keys = _listed([f"`{key}`" for key, _ in ignored.most_common()])
            notes.append(f"keys that are not read: {keys}")
        notes += _row_notes(rows)
        is_whole = has_all_rows(item.resolved, rows, spec.files)
        notes += _mixed_splits(rows, is_evaluated=is_evaluated, is_whole=is_whole)
        for note in filter(None, notes):
            yield spec.problem(item.path, f"{item.resolved}: {note}")


def _row_notes(rows: Sequence[ManifestRow]) -> Iterator[str]:
    """Yield a message for each kind of note on rows."""
    places: dict[RowNote, list[str]] = {}
    for row in rows:
        for note in row.notes:
            places.setdefault(note, []).append(str(row.origin))
    for note, found in places.items():
        subject = f"{len(found):,} of the first {len(rows):,} rows, beginning with {found[0]}"
        yield note_text(note, subject)


def _other_splits(manifest: str, spec: CheckedSpec) -> str | None:
    table = spec.files.table(manifest)
    named = {item.resolved for item in spec.expanded}
    others = [name for name in table.others if f"{manifest}/{name}" not in named] if table else []
    if table is None or not others:
        return None
    return (
        f"the split {table.split} is read, and not {', '.join(others)}; name another as "
        f"{manifest}/{others[0]}"
    )


def _held_out_split(manifest: str, spec: CheckedSpec) -> str | None:
    """Return a message on a folder whose only split is not for training; None for others."""
    table = spec.files.table(manifest)
    split = "" if table is None else table.split
    is_named = manifest.endswith(f"/{split}")
    if is_named or split_and_rest(split)[0] not in ("validation", "test"):
        return None
    return f"its only split is {split}, which is usually held out: all its rows are trained"


def _missing_files(manifest: str, spec: CheckedSpec) -> str | None:
    table = spec.files.table(manifest)
    if table is None or not table.num_missing:
        return None
    return (
        f"its files are numbered as {table.num_files + table.num_missing:,}, and "
        f"{table.num_missing:,} of them are missing: copy them, if you want all rows"
    )


def _unknown_ignored(
    manifest: str, rows: Sequence[ManifestRow], files: Files, options: RowOptions
) -> str | None:
    """Return a message on names in `columns.ignore` that no column or row has; None if none.

    Turns of a table or CSV are not read, and may have any key.
    """
    table = files.table(manifest)
    columns = list(table.names) if table else []
    names = columns or list(dict.fromkeys(k for r in rows for k in r.keys))
    is_json = not columns and not manifest.lower().endswith(".csv")
    if not names or (not is_json and any(map(options.holds_turns, names))):
        return None
    present = {*names, *(key for row in rows for key in row.left_out)}
    unknown = [name for name in options.columns.ignore if name not in present]
    if not unknown:
        return None
    near = difflib.get_close_matches(unknown[0], names, n=1)
    hint = f"; did you mean `{near[0]}`?" if near else f"; found: {_listed(names)}"
    where = "column" if columns else f"key of the first {len(rows):,} rows"
    return (
        f"`columns.ignore` names {_listed([f'`{name}`' for name in unknown])}, but no {where} "
        f"has this name{hint}"
    )


def _mixed_splits(
    rows: Sequence[ManifestRow], *, is_evaluated: bool, is_whole: bool
) -> Iterator[str]:
    """Yield messages that rows of other splits are used, from a column or the image folders.

    Rows may be sorted by split, so one split in the first rows is noted too if there may be more.
    """
    values: dict[str, dict[str, bool]] = {}
    folders: dict[str, bool] = {}
    for row in rows:
        for key, value in row.splits:
            is_train = split_of_column(normal(key), value) == "train"
            values.setdefault(key, {})[value] = is_train
        for image in row.image_paths:
            parts = image[:_LONGEST_PATH].replace("\\", "/").split("/")[:-1]
            folders.update((part, split == "train") for part in parts if (split := split_of(part)))
    verb = "evaluated" if is_evaluated else "trained"
    remedy = "write a manifest for each split, or add `{}` to `columns.ignore`"
    for key, splits in values.items():
        names = _listed(splits)
        if is_evaluated in splits.values():  # rows to train on, or held-out ones
            yield f"{key} has the values {names}: all rows are {verb}; {remedy.format(key)}"
        elif not is_whole:
            yield (
                f"{key} has the values {names} in the first {len(rows):,} rows, and rows of other "
                f"splits are {verb} too; {remedy.format(key)}"
            )
    if len(set(folders.values())) > 1:
        yield f"images are in folders of several splits, {_listed(folders)}: all rows are {verb}"


def _listed(names: Iterable[str]) -> str:
    all_names = list(names)
    more = f" and {len(all_names) - _MAX_KEYS} more" if len(all_names) > _MAX_KEYS else ""
    return ", ".join(all_names[:_MAX_KEYS]) + more
