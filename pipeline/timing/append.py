"""Appending to a record file so that a full disk leaves no half record in it."""

from __future__ import annotations

from io import FileIO
from pathlib import Path

from slurm_jobs.common.files import naming


def append_whole(stream: FileIO, data: bytes) -> None:
    """Write all of `data` where the stream stands, or nothing; nothing may lie after it.

    A disk that fills up takes a part of the bytes, and tells of the rest only when it is asked
    again. Half a record would shift, or spoil, all records after it.

    Raises:
        OSError: the file system failed, naming the file; it ends where it ended before.
    """
    start, rest = stream.tell(), memoryview(data)
    try:
        with naming(Path(stream.name)):
            while rest:
                rest = rest[stream.write(rest) :]
    except OSError:
        stream.seek(start)  # first: what is written next overwrites what cannot be cut off
        stream.truncate()
        raise
