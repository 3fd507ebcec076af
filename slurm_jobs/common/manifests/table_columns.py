"""Columns of a table whose values are needed to read its rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slurm_jobs.common.manifests.keys import may_hold_content
from slurm_jobs.common.manifests.values import RowOptions


def looked_at(schema: pa.Schema, options: RowOptions) -> list[str]:
    """Columns whose values are needed: those that are read, and those that may hold content."""
    names = []
    for name in dict.fromkeys(schema.names):
        kinds = [schema.field(index).type for index in schema.get_all_field_indices(name)]
        may_be = may_hold_content(name) or any(map(_may_hold_content, kinds))
        if options.reads(name) or (options.looks_at(name) and may_be and len(kinds) == 1):
            names.append(name)
    return names


def unread_names(names: Sequence[str], looked_at: Sequence[str], options: RowOptions) -> list[str]:
    """Columns whose values are not looked at, without those that the user said to ignore."""
    return [name for name in names if name not in looked_at and not options.ignores(name)]


def _may_hold_content(kind: pa.DataType) -> bool:
    """Whether values of a type can be a text or bytes, or have such within."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if kind.num_fields:
        return any(_may_hold_content(kind.field(index).type) for index in range(kind.num_fields))
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
