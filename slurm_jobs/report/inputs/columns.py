"""Step records field by field: what a report of millions of them is worked out from.

A file has its records one after the other, and a report asks for one field of all records at a
time, some sixty times. Each field in a piece of its own is several times faster to go through, and
a field that is the same in all records (no device, nothing compiled) takes no memory at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

UNUSED = frozenset({"epoch", "num_supervised_tokens", "num_images", "num_image_tokens"})
"""Fields that no report asks for; `report --export` has them."""


class StepColumns:
    """As much of a structured array as the report uses; slices share memory."""

    __slots__ = ("_columns", "_length")

    def __init__(self, columns: Mapping[str, np.ndarray], length: int) -> None:
        """Args: by field, arrays of `length`."""
        self._columns, self._length = dict(columns), length

    @classmethod
    def of(cls, records: np.ndarray) -> StepColumns:
        """Take records [num_steps] apart; they are not needed afterwards."""
        names = [name for name in records.dtype.names or () if name not in UNUSED]
        return cls({name: _column(records[name]) for name in names}, len(records))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: Any) -> Any:
        """A field by name, a record by number, some records by slice."""
        if isinstance(key, str):
            return self._columns[key]
        if isinstance(key, slice):
            length = len(range(*key.indices(self._length)))
            return StepColumns({name: c[key] for name, c in self._columns.items()}, length)
        return {name: column[key] for name, column in self._columns.items()}

    def __setitem__(self, name: str, values: np.ndarray) -> None:
        """Give a field other values; slices that were taken before keep theirs."""
        self._columns[name] = values

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(self._length))

    def compress(self, chosen: np.ndarray) -> StepColumns:
        """The records where `chosen` [num_steps] is true."""
        kept = {name: column[chosen] for name, column in self._columns.items()}
        return StepColumns(kept, int(np.count_nonzero(chosen)))

    def copy(self) -> StepColumns:
        """One whose fields may be given other values; the values themselves are shared."""
        return StepColumns({n: c.view() for n, c in self._columns.items()}, self._length)


def _column(values: np.ndarray) -> np.ndarray:
    """In a piece of its own; one value where all are the same, NaN too."""
    if len(values):
        first = values[0]
        same = np.isnan(values) if np.isnan(first) else values == first
        if same.all():
            return np.broadcast_to(np.array(first), values.shape)
    return np.ascontiguousarray(values)
