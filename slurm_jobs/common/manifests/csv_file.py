"""CSV whose first line names its columns; a text in quotes may go over lines."""

from __future__ import annotations

import csv
import io
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.manifests.csv_swallowed import find_row
from slurm_jobs.common.manifests.rows import ManifestRow, RowOrigin, bad_row
from slurm_jobs.common.manifests.text_format import BLOCK_BYTES, Block, Found
from slurm_jobs.common.manifests.values import RowOptions, read_row

_BOM = b"\xef\xbb\xbf"
_MOST_CHARACTERS = 2**31 - 1
"""Of a cell: what every platform's C long holds."""
_LOOK_AT_CHARACTERS = 131_072
"""Of a cell: the library's own limit. One that is longer is looked at before more is read, because
it may be a quote that nobody closed, with all rows up to the next quote in it."""

_CUT = "a carriage return (\\r) in the middle of the row; put a text that has one in double quotes"


class _Lines:
    """The lines of a stream, some megabytes at a time, as the reader of records asks for them."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream = stream
        self._path = path
        self._has_newlines = _has_newlines(path)
        self._waiting: deque[str] = deque()
        """The rest of the line of bytes that was given last: a carriage return ends a line, too."""
        self._place = 0
        self.taken: list[bytes] = []
        """Lines of bytes since the last `refill`, given or not."""
        self.num_given_bytes = 0
        """Since the last `refill`."""
        self.last = ""
        """The line that was given last."""

    def refill(self) -> list[bytes]:
        """Forget what was taken, all of which was given, and take the next lines."""
        assert self.is_over
        self.taken = self._stream.readlines(BLOCK_BYTES)
        self._place = self.num_given_bytes = 0
        return self.taken

    @property
    def is_over(self) -> bool:
        """Whether all that was taken was given."""
        return not self._waiting and self._place == len(self.taken)

    def skip_all_plain(self) -> list[bytes]:
        """What is left of the lines taken, if each is a record of its own for certain."""
        rest = self.taken[self._place :]
        data = b"".join(rest)
        if self._waiting or b'"' in data or data.count(b"\r") != data.count(b"\r\n"):
            return []
        self._place = len(self.taken)
        return rest

    def skip_plain(self) -> bytes | None:
        """The next line, if it is a record of its own for certain; None if the reader must say."""
        line = self.taken[self._place] if not self._waiting else b'"'
        if b'"' in line or b"\r" in line.removesuffix(b"\r\n"):
            return None
        self._place += 1
        return line

    def drop_rest(self) -> bool:
        """Whether the record that was read last goes on behind a carriage return of its line.

        Then the rest of the line is given, to nobody. A file without any newline has carriage
        returns in their place; two of them and a newline, which Windows may make, end a line.
        """
        rest = "".join(self._waiting) if self._has_newlines else ""
        if not rest.strip("\r\n"):
            return False
        self._waiting.clear()
        self.num_given_bytes += len(rest.encode())
        return True

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if not self._waiting:
            if self._place == len(self.taken):  # a record goes on behind what was taken
                more = self._stream.readline()
                if not more:
                    raise StopIteration
                self.taken.append(more)
            text = decoded(self.taken[self._place], self._path)
            self._place += 1
            self._waiting.extend(io.StringIO(text, newline=""))
        self.last = self._waiting.popleft()
        self.num_given_bytes += len(self.last.encode())
        return self.last


def _has_newlines(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.readline().endswith(b"\n")


_Shape = tuple[int, int]
"""Number of columns, and which of them has pictures."""


class CsvFile:
    """The format of CSV."""

    def __init__(self, path: Path, options: RowOptions) -> None:
        self.path = path
        self._options = options

    def find(self, stream: IO[bytes]) -> Iterator[Found]:
        """Blocks of whole records, without the first line.

        Raises:
            StageConfigError: a column is missing, a quote is not closed, or it is no UTF-8.
        """
        path = self.path
        lines = _Lines(stream, path)
        offset = 0
        if lines.refill() and lines.taken[0].startswith(_BOM):
            lines.taken[0] = lines.taken[0].removeprefix(_BOM)
            offset = len(_BOM)
        header, line = self._header_of(lines)
        shape = self._shape(header)
        num_before = lines.num_given_bytes
        while lines.taken:
            num_rows, num_lines = _count(lines, path, line, shape)
            data = b"".join(lines.taken)[num_before:]
            decoded(data, path)
            offset += num_before
            yield Found(offset=offset, data=data, num_rows=num_rows, line=line, header=header)
            offset, line, num_before = offset + len(data), line + num_lines, 0
            lines.refill()

    def parse(self, data: bytes, block: Block, header: tuple[str, ...], /) -> Iterator[ManifestRow]:
        """The rows of a block; one with too many or too few cells is a bad row."""
        lines = _Lines(io.BytesIO(data), self.path)
        shape = self._shape(header)
        row, line = block.first_row, block.line
        while True:
            cells, num_lines = _read_record(lines, self.path, line, shape)
            if cells is None:
                return
            if cells:  # none of an empty line
                origin = RowOrigin(row=row, line=line, manifest=self.path)
                if isinstance(cells, str):
                    yield bad_row(origin, cells)
                elif len(cells) != len(header):
                    yield bad_row(origin, _wrong_number(cells, header))
                else:
                    value = dict(zip(header, cells, strict=True))
                    yield read_row(origin, value, self._options)
                row += 1
            line += num_lines

    def read_header(self, stream: IO[bytes]) -> tuple[tuple[str, ...], int, int]:
        """Return the cells of the first line, the number of the next, and where that begins.

        Raises:
            StageConfigError: the columns make no samples.
        """
        lines = _Lines(stream, self.path)
        has_mark = bool(lines.refill()) and lines.taken[0].startswith(_BOM)
        if has_mark:
            lines.taken[0] = lines.taken[0].removeprefix(_BOM)
        header, line = self._header_of(lines)
        return header, line, lines.num_given_bytes + (len(_BOM) if has_mark else 0)

    def _header_of(self, lines: _Lines) -> tuple[tuple[str, ...], int]:
        """The cells of the first line, and the line after it."""
        first, num_lines = _read_record(lines, self.path, 1)
        header = tuple(first if isinstance(first, list) else [""])
        if isinstance(first, str):
            message = f"{self.path}:1: {first}"
            raise StageConfigError(message)
        self._shape(header)
        return header, 1 + num_lines

    def _shape(self, header: tuple[str, ...]) -> _Shape | None:
        """How rows of this header look; None without a column of pictures.

        Raises:
            StageConfigError: its columns make no samples.
        """
        wrong = self._options.wrong_columns(header)
        if wrong:
            message = f"{self.path}:1: {wrong}"
            raise StageConfigError(message)
        pictures = (n for n, name in enumerate(header) if self._options.holds_picture(name))
        column = next(pictures, None)
        return None if column is None else (len(header), column)


def _count(lines: _Lines, path: Path, line: int, shape: _Shape | None) -> tuple[int, int]:
    """Rows and lines of what was taken and not given; a record that goes on behind it is whole."""
    plain = lines.skip_all_plain()
    if plain:
        return len(plain) - plain.count(b"\n") - plain.count(b"\r\n"), len(plain)
    num_rows = num_lines = 0
    while not lines.is_over:
        one = lines.skip_plain()
        if one is not None:
            num_rows += one not in {b"\n", b"\r\n"}
            num_lines += 1
        else:
            cells, num_more = _read_record(lines, path, line + num_lines, shape)
            num_rows += bool(cells)
            num_lines += num_more
    return num_rows, num_lines


def _wrong_number(cells: Sequence[str], header: Sequence[str]) -> str:
    found = f"{len(cells)} cells, the first line names {len(header)} columns"
    hint = '; put a text that has commas in double quotes: "a dog, running"'
    return found + (hint if len(cells) > len(header) else "")


def _read_record(
    lines: _Lines, path: Path, line: int, shape: _Shape | None = None
) -> tuple[list[str] | str | None, int]:
    """The cells of the next record, or what is wrong with it, and the lines that it takes.

    None at the end. A wrong record whose quotes are even is over with its line, and so is one that
    a carriage return outside of quotes would cut.
    """
    taken: list[str] = []
    found: list[str] | csv.Error | None = None
    for most in (_LOOK_AT_CHARACTERS, _MOST_CHARACTERS):
        csv.field_size_limit(most)  # one of the whole process
        try:
            found = next(csv.reader(itertools.chain(taken, _kept(lines, taken)), strict=True), None)
        except csv.Error as error:
            found = error
        is_long = isinstance(found, csv.Error) and "field limit" in str(found)
        _check_text(taken[1:-1] if is_long else _lines_within(found), shape, path, line)
        if not isinstance(found, csv.Error):
            return (_CUT if found and lines.drop_rest() else found), len(taken)
        if not is_long:
            break
    # With an odd quote, or over lines, nobody can tell which rows an open quote has swallowed.
    if len(taken) == 1 and lines.last.count('"') % 2 == 0:
        lines.drop_rest()
        return f"no CSV ({found})", 1
    raise StageConfigError(_not_closed(path, line, f"{found} at line {line + len(taken) - 1}"))


def _lines_within(found: list[str] | csv.Error | None) -> list[str]:
    """The lines of the cells, but for the first of each."""
    cells = found if isinstance(found, list) else []
    return [line for cell in cells for line in cell.splitlines()[1:]]


def _check_text(within: Sequence[str], shape: _Shape | None, path: Path, line: int) -> None:
    row = find_row(within, *shape) if shape else ""
    if row:
        problem = f"its text goes over lines, and one of them is a row by itself: {row}"
        message = f"{_not_closed(path, line, problem)}; a text that is meant so: as JSON lines"
        raise StageConfigError(message)


def _kept(lines: _Lines, taken: list[str]) -> Iterator[str]:
    """The lines, each put into `taken`."""
    for line in lines:
        taken.append(line)
        yield line


def _not_closed(path: Path, line: int, problem: str) -> str:
    return (
        f"{path}:{line}: the row that begins here is no CSV ({problem}); a double quote that opens "
        f"a text must be closed, and one within it written twice"
    )


def decoded(data: bytes, path: Path) -> str:
    """Bytes of the file as text.

    Raises:
        StageConfigError: they are no UTF-8; it has the line.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        at, problem = _first_undecodable_line(path)
        message = f"{path}:{at}: no UTF-8 ({problem}); save the manifest as UTF-8"
        raise StageConfigError(message) from error


def _first_undecodable_line(path: Path) -> tuple[int, str]:
    """Number of the first line that is no UTF-8, from 1, and what is wrong with it."""
    with path.open("rb") as stream:
        for line_index, line in enumerate(stream):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return line_index + 1, f"byte 0x{line[error.start]:02x}: {error.reason}"
    message = f"{path} was changed while it was read"
    raise StageConfigError(message)
