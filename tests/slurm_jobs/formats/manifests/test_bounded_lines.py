"""Lines of bounded length: those of a stream, and nothing of a line that is too long."""

from __future__ import annotations

import io
import tracemalloc

import pytest

from slurm_jobs.formats.manifests import bounded_lines
from slurm_jobs.formats.manifests.bounded_lines import HEAD_BYTES, BoundedLines, LongLine


def read_all(data: bytes, least_bytes: int) -> list[bytes | LongLine]:
    bounded = BoundedLines(io.BytesIO(data))
    found: list[bytes | LongLine] = []
    while (block := bounded.readlines(least_bytes)) or bounded.long:
        found += block
        if bounded.long:
            found.append(bounded.long)
    return found


@pytest.mark.parametrize("least_bytes", [1, 3, 7, 100])
@pytest.mark.parametrize("data", [b"", b"\n", b"a", b"a\nbc\r\n\nde", b"\n\n", b"abcdefgh\n" * 9])
def test_short_lines_are_those_of_the_stream(data, least_bytes):
    assert read_all(data, least_bytes) == io.BytesIO(data).readlines()


@pytest.mark.parametrize("least_bytes", [1, 4, 9])
@pytest.mark.parametrize("end", [b"\n", b"\nx\n", b""])
def test_a_long_line_is_passed_over_and_counted(monkeypatch, end, least_bytes):
    monkeypatch.setattr(bounded_lines, "MAX_ROW_BYTES", 10)
    data = b"ab\n012345678\n0123456789\nc\n" + b"y" * 25 + end
    found = read_all(data, least_bytes)
    sizes = [each.num_bytes if isinstance(each, LongLine) else each for each in found]
    last = io.BytesIO(end[1:]).readlines()
    assert sizes == [b"ab\n", b"012345678\n", 11, b"c\n", 25 + len(end[:1]), *last]
    heads = [each.head for each in found if isinstance(each, LongLine)]
    assert b"0123456789\n".startswith(heads[0])
    assert heads[1].startswith(b"y" * 11)


LIMIT = 1 << 24


def test_of_a_long_line_no_more_than_its_limit_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(bounded_lines, "MAX_ROW_BYTES", LIMIT)
    path = tmp_path / "rows"
    with path.open("wb") as stream:
        stream.seek(5 * LIMIT)
        stream.write(b"\nb\n")
    tracemalloc.start()
    with path.open("rb", buffering=1 << 20) as stream:
        bounded = BoundedLines(stream)
        assert bounded.readlines(1000) == []
        assert bounded.long == LongLine(head=bytes(HEAD_BYTES), num_bytes=5 * LIMIT + 1)
        assert bounded.readlines(1000) == [b"b\n"]
        assert bounded.long is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * LIMIT
