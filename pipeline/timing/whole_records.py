"""Appending to a record file so that a full disk never leaves a partial record."""

from __future__ import annotations

from io import FileIO
from pathlib import Path

from slurm_jobs.base.files import naming


def append_whole(stream: FileIO, data: bytes) -> None:
    """Write all of `data` at the stream's position, or nothing; it must be the end of the file.

    A full disk writes a part of the bytes, and reports the rest only at the next call. A
    partial record would shift, or spoil, all records after it.

    Raises:
        OSError: the file system failed, naming the file; the file is unchanged.
    """
    start, rest = stream.tell(), memoryview(data)
    try:
        with naming(Path(stream.name)):
            while rest:
                rest = rest[stream.write(rest) :]
    except OSError:
        stream.seek(start)  # first: the next write overwrites what cannot be truncated
        stream.truncate()
        raise


def replace_record(stream: FileIO, start: int, data: bytes) -> None:
    """Write `data` over as many bytes at `start`, the last of the file, and stay behind them.

    Raises:
        OSError: the file system failed, naming the file; its length is unchanged.
    """
    stream.seek(start)
    rest = memoryview(data)
    with naming(Path(stream.name)):
        while rest:
            rest = rest[stream.write(rest) :]
