"""Names of classes that `datasets` stores in a table's schema, for columns of their numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slurm_jobs.formats.manifests.row_options import RowOptions

if TYPE_CHECKING:
    import pyarrow as pa

ClassNames = Mapping[str, Sequence[str]]
"""Names of classes by column, in the order of their numbers, from 0."""


def class_names(schema: pa.Schema, options: RowOptions) -> ClassNames:
    """Return the names of the classes of columns that are read."""
    names = all_class_names(schema)
    return {column: names[column] for column in names if options.meaning(column) is not None}


def all_class_names(schema: pa.Schema) -> ClassNames:
    """Return the names of the classes of all columns that have some.

    `datasets` writes its features into the metadata of Parquet and Arrow files, as JSON.
    """
    try:
        stored = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = stored["info"]["features"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}
    names: dict[str, Sequence[str]] = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        listed = feature.get("names") if isinstance(feature, dict) else None
        if isinstance(listed, list):
            names[column] = [str(name) for name in listed]
    return names


def with_class_names(row: dict[str, Any], names: ClassNames) -> dict[str, Any]:
    """Return a row with the names of classes in place of their numbers.

    A number without a name, such as the -1 of a row without a class, becomes None.
    """
    if not names:
        return row
    named = dict(row)
    for column, of_column in names.items():
        number = row.get(column)
        if isinstance(number, int) and not isinstance(number, bool):
            named[column] = of_column[number] if 0 <= number < len(of_column) else None
    return named
