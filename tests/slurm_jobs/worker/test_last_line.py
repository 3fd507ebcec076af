"""The last line of a log that is recorded with an exit code."""

import os
from pathlib import Path

import pytest

from slurm_jobs.worker.last_line import MAX_LAST_LINE_CHARS, read_last_line


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", None),
        (b"\n \n\t\n", None),
        (b"one\ntwo\n\n", "two"),
        (b"no line end", "no line end"),
        (b"10%\r50%\r50% out of space\n", "50% out of space"),
        (b"\x1b[31mred\x1b[0m\x07\n", "red\\x07"),
        (b"\xff\n", "\N{REPLACEMENT CHARACTER}"),
        (b"x" * 20_000, None),  # its beginning, which may name a secret, is out of reach
        (b"x" * 20_000 + b"\nthe end\n", "the end"),
        (b"HF_TOKEN=hf_abcdef is refused\n", "HF_TOKEN=(not shown) is refused"),
        (b"refused: s3cr3t-value\n", "refused: (not shown)"),
    ],
)
def test_the_last_line_is_one_that_can_be_shown(
    tmp_path: Path, data: bytes, line: str | None
) -> None:
    log = tmp_path / "rank.log"
    log.write_bytes(data)
    assert read_last_line(log, {"MY_PASSWORD": "s3cr3t-value"}) == line


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "rank.log"
    log.write_text("word " * 1000)
    line = read_last_line(log, {})
    assert line is not None
    assert len(line) <= MAX_LAST_LINE_CHARS


def test_a_log_that_cannot_be_read_has_no_last_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "missing"):
        assert read_last_line(tmp_path / name, {}) is None
