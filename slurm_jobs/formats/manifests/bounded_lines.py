"""Lines of a text manifest, read up to a limit: a longer one is passed over and counted."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import IO

MAX_ROW_BYTES = 256 * 1024 * 1024
"""Limit of a row's line. A row has words, and names of pictures or some pictures as base64; a line
of gigabytes would take the memory of every task that reads the manifest."""
HEAD_BYTES = 4096
"""Bytes that are kept of a row that is not read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LongLine:
    """Line that is not read."""

    head: bytes
    """Its beginning."""
    num_bytes: int
    """With its line break."""


class BoundedLines:
    """Reader of a stream's lines that never holds a line longer than `MAX_ROW_BYTES`."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.long: LongLine | None = None
        """The line after those that `readlines` has just returned, if it is too long to be read."""

    def readlines(self, least_bytes: int) -> list[bytes]:
        """Return whole lines that have `least_bytes` together.

        They have fewer bytes if the stream ends or a line follows that is too long. Then the list
        may also be empty.
        """
        self.long = None
        data = self._stream.read(least_bytes)
        if data.endswith(b"\n") or not data:
            return io.BytesIO(data).readlines()
        start = data.rfind(b"\n") + 1
        rest = self._stream.readline(MAX_ROW_BYTES + 1)
        num_bytes = len(data) - start + len(rest)
        if num_bytes <= MAX_ROW_BYTES:
            return io.BytesIO(data + rest).readlines()
        head = (data[start:] + rest[:HEAD_BYTES])[:HEAD_BYTES]
        while rest and not rest.endswith(b"\n"):
            rest = self._stream.readline(1 << 20)
            num_bytes += len(rest)
        self.long = LongLine(head=head, num_bytes=num_bytes)
        return io.BytesIO(data[:start]).readlines()

    def readline(self) -> bytes:
        """Return the next line; a long one is cut after its limit, and has no line break then."""
        return self._stream.readline(MAX_ROW_BYTES + 1)


def long_row_problem(num_bytes: int) -> str:
    """Return why a row of this size is rejected."""
    return (
        f"the row has {num_bytes:,} bytes; rows of more than {MAX_ROW_BYTES:,} bytes are not read: "
        "keep its pictures in files, and name these in the row"
    )
