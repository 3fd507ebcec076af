"""Columns of a table whose values are needed to read its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from slurm_jobs.formats.manifests.keys import may_hold_content, names_media
from slurm_jobs.formats.manifests.row_options import RowOptions


def needed_columns(schema: pa.Schema, options: RowOptions) -> list[str]:
    """Return the needed columns: those that are read, and those that may hold content."""
    names = []
    for name in dict.fromkeys(schema.names):
        kinds = [schema.field(index).type for index in schema.get_all_field_indices(name)]
        leaves = [leaf for kind in kinds for leaf in _leaf_types(kind)]
        # Only numbers, booleans and times hold no texts or bytes: further types (views) may.
        is_content = not all(map(_is_number, leaves))
        may_be = may_hold_content(name) or is_content
        if options.reads(name) or (options.looks_at(name) and may_be and len(kinds) == 1):
            names.append(name)
        elif names_media(name) and len(kinds) == 1 and is_content:
            # Ignored, and refused if the row has no picture. Bytes take time to read.
            names += [] if any(map(_is_bytes, leaves)) else [name]
    return names


def unread_names(names: Sequence[str], needed: Sequence[str], options: RowOptions) -> list[str]:
    """Return columns whose values are not read, without those that the user chose to ignore."""
    return [name for name in names if name not in needed and not options.ignores(name)]


def _leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of the values within a type: of lists, structs, dictionaries, extensions."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaf_types(kind.storage_type)
    elif types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        yield from _leaf_types(kind.value_type)
    elif kind.num_fields:
        for index in range(kind.num_fields):
            yield from _leaf_types(kind.field(index).type)
    else:
        yield kind


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    is_view = getattr(types, "is_binary_view", lambda _kind: False)(kind)
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(is_bytes or types.is_fixed_size_binary(kind) or is_view)


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    is_number = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    is_number = is_number or types.is_decimal(kind) or types.is_null(kind)
    return bool(is_number or types.is_temporal(kind))
