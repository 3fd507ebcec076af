"""Text manifests: CSV, JSON lines, and LLaVA's JSON list."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from slurm_jobs.base.errors import StageConfigError, StageDataError
from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.formats.manifests import bounded_lines
from slurm_jobs.formats.manifests.bounded_lines import HEAD_BYTES, BoundedLines, LongLine
from slurm_jobs.formats.manifests.keys import PICTURE_NAME, shorten
from slurm_jobs.formats.manifests.messages import ManifestRow, RowOrigin, bad_row
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.values import TOO_DEEP, read_row

BLOCK_BYTES = 4 * 1024 * 1024
"""Smallest size of a block; a slice parses at most this much before its first row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeRows:
    """Run of whole rows, as a format finds it in a file."""

    offset: int
    data: bytes
    num_rows: int
    line: int
    """Line of its first byte, from 1; 0 in a list, whose rows have no lines of their own."""
    header: tuple[str, ...] = ()
    """Names of columns, if the format has them; only in the first block."""
    long_bytes: int = 0
    """Size of a row that is too long to be read, alone in its run: `data` is its beginning."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Run of whole rows, in the index."""

    first_row: int
    num_rows: int
    offset: int
    num_bytes: int
    line: int
    xxh3: int
    long_bytes: int = 0
    """As in `WholeRows`."""


def _found_long(long: LongLine, offset: int, line: int) -> WholeRows:
    return WholeRows(
        offset=offset, data=long.head, num_rows=1, line=line, long_bytes=long.num_bytes
    )


class TextFormat(Protocol):
    """Parser of a format: bounds of rows, and their content."""

    path: Path

    def find(self, stream: IO[bytes]) -> Iterator[WholeRows]:
        """Yield the blocks of the file in order; raise StageConfigError if it has another format.

        `stream` is the file at `path`.
        """
        ...

    def parse(self, data: bytes, block: Block, header: tuple[str, ...], /) -> Iterator[ManifestRow]:
        """Yield the rows of a block."""
        ...


_BOM = b"\xef\xbb\xbf"
_CHECKED_CELL_CHARS = 131_072
"""Longest cell that is read at first: the library's own limit. A longer one is checked before more
is read, because it may be an unclosed quote that contains all rows up to the next quote."""
_CUT = "a carriage return (\\r) in the middle of the row; put a text that has one in double quotes"

_MIN_LINES = 5
"""Fewest lines that look like rows, and from which they must outnumber the others."""

_Shape = tuple[int, int]
"""Number of columns, and which of them has pictures."""


class _Lines:
    """Lines of a CSV file, a block at a time, and its records.

    It is the iterator of lines that `csv.reader` takes; the reader takes no line after a record.
    """

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream = BoundedLines(stream)
        self._path = path
        with open_regular(path) as file:
            self._has_newlines = file.readline(bounded_lines.MAX_ROW_BYTES).endswith(b"\n")
        self.block: list[bytes] = []
        self.long: LongLine | None = None
        """The line after the block, if it is too long to be read."""
        self.place = 0
        """Index in `block` of the next line."""
        self._start = 0
        """Index in `block` of the first line of the current record."""
        self.read_block()

    def read_block(self) -> None:
        """Replace the block, all of which was returned, by the next lines."""
        self.block = self._stream.readlines(BLOCK_BYTES)
        self.long = self._stream.long
        if not self._has_newlines:  # carriage returns end its lines
            self.block = b"".join(self.block).splitlines(keepends=True)
        self.place = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.place == len(self.block):  # a record continues after the block
            line = b"" if self.long else self._stream.readline()
            if self.long or len(line) > bounded_lines.MAX_ROW_BYTES:
                limit = bounded_lines.MAX_ROW_BYTES
                message = f"a line of more than {limit:,} bytes in a text of several lines"
                raise csv.Error(message)
            if not line:
                raise StopIteration
            self.block.append(line)
        text = decoded(self.block[self.place], self._path)
        # After a newline, a carriage return is the end of an empty line.
        text = text.lstrip("\r") if self.place == self._start else text
        self.place += 1
        return text

    def read_record(self, line: int, shape: _Shape | None = None) -> list[str] | str | None:
        """Return the cells of the next record, or its error; None at the end.

        `line` is the number of its first line, for messages. By the shape of rows they are detected
        in the text of an unclosed quote.

        Raises:
            StageConfigError: an open quote may contain any of the following rows.
        """
        self._start = self.place
        cells, problem, is_long = None, "", False
        for most in (_CHECKED_CELL_CHARS, bounded_lines.MAX_ROW_BYTES):
            csv.field_size_limit(most)  # one of the whole process
            self.place = self._start
            try:
                cells, problem = next(csv.reader(self, strict=True), None), ""
            except csv.Error as error:
                problem = str(error)
            is_long = "field limit" in problem
            if is_long:
                taken = self.block[self._start + 1 : self.place - 1]
                within = [decoded(raw, self._path) for raw in taken]
            else:
                within = [text for cell in cells or () for text in cell.splitlines()[1:]]
            row = _find_row(within, shape) if shape else ""
            if row:
                cause = f"its text has several lines, and one of them is a complete row: {row}"
                remedy = "; a text that is meant so: as JSON lines"
                raise StageConfigError(_not_closed(self._path, line, cause) + remedy)
            if not is_long:
                break
        if not problem:
            return cells
        if "new-line character" in problem:
            return _CUT
        line_of_start = b"".join(self.block[self._start : self._start + 1])
        first = line_of_start.lstrip(b"\r").partition(b"\r")[0]
        if self.place == self._start + 1 and first.count(b'"') % 2 == 0:
            return f"not valid CSV ({problem})"
        problem = f"{problem} at line {line + self.place - self._start - 1}"
        raise StageConfigError(_not_closed(self._path, line, problem))


def _find_row(lines: Sequence[str], shape: _Shape) -> str:
    """Return a line of a text that is a complete row, for a message; empty if there is none.

    An unclosed quote ends at the next one, perhaps an inch mark a thousand rows later, and the
    result is valid CSV. A row has a picture in its column. Names without an ending count only if
    most lines have such names. Poems are not taken for rows, because their lines have blanks there.
    `lines` has those of a text, except its first.
    """
    num_columns, column = shape
    similar = []
    for line in lines:
        try:
            cells = next(csv.reader([line]), [])
        except csv.Error:
            continue
        name = cells[column].strip() if len(cells) == num_columns else ""
        if PICTURE_NAME.search(name):
            return shorten(line.rstrip())
        if name and not any(character.isspace() for character in name):
            similar.append(line)
    is_most = len(lines) >= _MIN_LINES and 2 * len(similar) > len(lines)
    return shorten(similar[0].rstrip()) if is_most else ""


def _not_closed(path: Path, line: int, problem: str) -> str:
    return (
        f"{path}:{line}: the row that begins here is not valid CSV ({problem}); a double quote "
        f"that opens a text must be closed, and one within it written twice"
    )


class CsvFile:
    """CSV whose first line names its columns; a quoted text may contain line breaks."""

    def __init__(self, path: Path, options: RowOptions) -> None:
        self.path = path
        self._options = options

    def find(self, stream: IO[bytes]) -> Iterator[WholeRows]:
        """Yield blocks of whole records, without the first line.

        Raises:
            StageConfigError: a column is missing, a quote is not closed, or the file is not UTF-8.
        """
        lines = _Lines(stream, self.path)
        header, offset = self.read_header(lines)
        shape, line = self._shape(header), 1 + lines.place
        while lines.block or lines.long:
            start = lines.place
            num_rows = _count_rows(lines, line, shape)
            data = b"".join(lines.block[start:])
            decoded(data, self.path)
            yield WholeRows(offset=offset, data=data, num_rows=num_rows, line=line, header=header)
            offset, line = offset + len(data), line + len(lines.block) - start
            if lines.long:
                yield _found_long(lines.long, offset, line)
                offset, line = offset + lines.long.num_bytes, line + 1
            lines.read_block()

    def parse(self, data: bytes, block: Block, header: tuple[str, ...], /) -> Iterator[ManifestRow]:
        """Yield the rows of a block; one with too many or too few cells is a bad row."""
        lines = _Lines(io.BytesIO(data), self.path)
        shape = self._shape(header)
        row, line = block.first_row, block.line
        while (cells := lines.read_record(line, shape)) is not None:
            if cells:  # an empty line is no row
                origin = RowOrigin(row=row, line=line, manifest=self.path)
                if isinstance(cells, str):
                    yield bad_row(origin, cells)
                elif len(cells) != len(header):
                    num_cells = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
                    problem = f"{num_cells}, the first line names {len(header)} columns"
                    if len(cells) > len(header):
                        problem += '; put a text that has commas in double quotes: "a dog, running"'
                    yield bad_row(origin, problem)
                else:
                    value = dict(zip(header, cells, strict=True))
                    yield read_row(origin, value, self._options)
                row += 1
            line = block.line + lines.place

    def read_header(self, lines: _Lines) -> tuple[tuple[str, ...], int]:
        """Return the cells of the first line, and the offset of the next.

        Raises:
            StageConfigError: the columns make no samples.
        """
        has_bom = bool(lines.block) and lines.block[0].startswith(_BOM)
        if has_bom:
            lines.block[0] = lines.block[0].removeprefix(_BOM)
        cells = lines.read_record(1)
        if isinstance(cells, str):
            message = f"{self.path}:1: {cells}"
            raise StageDataError(message)
        header = tuple([""] if cells is None else cells)
        self._shape(header)
        return header, sum(map(len, lines.block[: lines.place])) + len(_BOM) * has_bom

    def _shape(self, header: tuple[str, ...]) -> _Shape | None:
        """Return the form of rows with this header; None without a column of pictures.

        Raises:
            StageConfigError: its columns make no samples.
        """
        wrong = self._options.wrong_columns(header)
        if wrong:
            message = f"{self.path}:1: {wrong}"
            raise StageDataError(message)
        pictures = (n for n, name in enumerate(header) if self._options.holds_picture(name))
        column = next(pictures, None)
        return None if column is None else (len(header), column)


def _count_rows(lines: _Lines, line: int, shape: _Shape | None) -> int:
    """Count the rows in the rest of the block; complete the last record."""
    start, rest = lines.place, lines.block[lines.place :]
    data = b"".join(rest)
    if b'"' not in data and data.count(b"\r") == data.count(b"\r\n"):  # each line is a record
        lines.place = len(lines.block)
        return len(rest) - rest.count(b"\n") - rest.count(b"\r\n")
    num_rows = 0
    while lines.place < len(lines.block):
        raw = lines.block[lines.place]
        if b'"' in raw or b"\r" in raw.removesuffix(b"\r\n"):
            num_rows += bool(lines.read_record(line + lines.place - start, shape))
        else:
            num_rows += raw not in {b"\n", b"\r\n"}
            lines.place += 1
    return num_rows


def decoded(data: bytes, path: Path) -> str:
    """Decode bytes of the file.

    Raises:
        StageConfigError: they are not UTF-8; the message has the line.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{path} was changed while it was read"
        with open_regular(path) as stream:
            for number, line in enumerate(stream, 1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as wrong:
                    problem = f"byte 0x{line[wrong.start]:02x}: {wrong.reason}"
                    message = f"{path}:{number}: not UTF-8 ({problem}); save the manifest as UTF-8"
                    break
        raise StageConfigError(message) from error


class JsonLines:
    """JSON lines: one row in each line; blank lines are skipped."""

    def __init__(self, path: Path, options: RowOptions) -> None:
        self.path = path
        self._options = options

    def find(self, stream: IO[bytes]) -> Iterator[WholeRows]:
        """Yield blocks of whole lines."""
        offset, line = 0, 1
        bounded = BoundedLines(stream)
        while (lines := bounded.readlines(BLOCK_BYTES)) or bounded.long:
            num_blank = sum(map(bytes.isspace, lines))
            data = b"".join(lines)
            if _BOM in data:
                num_blank = sum(not text.removeprefix(_BOM).strip() for text in lines)
            yield WholeRows(offset=offset, data=data, num_rows=len(lines) - num_blank, line=line)
            offset, line = offset + len(data), line + len(lines)
            if bounded.long:
                yield _found_long(bounded.long, offset, line)
                offset, line = offset + bounded.long.num_bytes, line + 1

    def parse(
        self, data: bytes, block: Block, _header: tuple[str, ...], /
    ) -> Iterator[ManifestRow]:
        """Yield the rows of a block; a line that is not JSON is a bad row."""
        row = block.first_row
        for index, line in enumerate(data.split(b"\n")):
            text = line.removeprefix(_BOM).strip()
            if not text:
                continue
            origin = RowOrigin(row=row, line=block.line + index, manifest=self.path)
            row += 1
            try:
                value = json.loads(text)
            except ValueError as error:
                yield bad_row(origin, f"no valid JSON ({error})", is_json=False)
            except RecursionError:
                yield bad_row(origin, TOO_DEEP)
            else:
                yield read_row(origin, value, self._options)


MAX_LIST_BYTES = 8 * 1024**3
"""Limit of a JSON list, which is held in memory while its rows are counted."""
_BLANK = re.compile(r"[ \t\n\r]*")
_BLANK_OR_COMMA = re.compile(r"[ \t\n\r,]*")


class JsonList:
    """LLaVA's JSON: one list of rows. It is parsed whole once; later each block alone."""

    def __init__(self, path: Path, options: RowOptions) -> None:
        self.path = path
        self._options = options

    def find(self, stream: IO[bytes]) -> Iterator[WholeRows]:
        """Yield blocks of whole elements, including the commas between them.

        Raises:
            StageConfigError: the JSON is invalid anywhere, or too long to be read whole.
        """
        if self.path.stat().st_size > MAX_LIST_BYTES:
            message = (
                f"{self.path}: a JSON list of more than {MAX_LIST_BYTES:,} bytes, which would have "
                "to be read whole; save it as JSON lines, one row in each line"
            )
            raise StageDataError(message)
        data = stream.read()
        try:
            text = data.removeprefix(_BOM).decode("utf-8")
            offset, place = len(data) - len(data.removeprefix(_BOM)), 0
            for start, end, num_rows in _runs(text):
                offset += len(text[place:start].encode())
                block = text[start:end].encode()
                long_bytes = (
                    len(block) if num_rows == 1 and len(block) > bounded_lines.MAX_ROW_BYTES else 0
                )
                kept = block[:HEAD_BYTES] if long_bytes else block
                yield WholeRows(
                    offset=offset, data=kept, num_rows=num_rows, line=0, long_bytes=long_bytes
                )
                offset, place = offset + len(block), end
        except ValueError as error:
            message = f"{self.path}: starts like a JSON list but is not valid JSON ({error})"
            raise StageDataError(message) from error
        except RecursionError as error:
            raise _too_deep(self.path) from error

    def parse(
        self, data: bytes, block: Block, _header: tuple[str, ...], /
    ) -> Iterator[ManifestRow]:
        """Yield the rows of a block."""
        try:
            values = json.loads(b"[" + data + b"]")
        except RecursionError as error:
            raise _too_deep(self.path) from error
        for row, value in enumerate(values, start=block.first_row):
            origin = RowOrigin(row=row, line=None, manifest=self.path)
            yield read_row(origin, value, self._options)


def _too_deep(path: Path) -> StageConfigError:
    return StageDataError(
        f"{path}: {TOO_DEEP}; as JSON lines only the row at fault would be left out"
    )


def _runs(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and number of elements of each run.

    Raises:
        ValueError: the text is no list; the message is that of `json` for the whole text.
    """
    decoder = json.JSONDecoder()
    start = place = _skip(_BLANK, text, _skip(_BLANK, text, 0) + 1)
    num_rows, end, mark = 0, place, text[place : place + 1]
    while mark != "]":
        try:
            _, after = decoder.raw_decode(text, place)
        except json.JSONDecodeError:
            json.loads(text)
            raise
        is_long = (
            after - place > bounded_lines.MAX_ROW_BYTES // 4
        )  # a character has at most four bytes
        if is_long and num_rows:
            yield start, end, num_rows
            start, num_rows = place, 0
        num_rows, end = num_rows + 1, after
        place = _skip(_BLANK, text, end)
        mark = text[place : place + 1]
        if mark == ",":
            place = _skip(_BLANK, text, place + 1)
        elif mark != "]":
            json.loads(text)
        if mark == "]" or is_long or end - start >= BLOCK_BYTES:
            yield start, end, num_rows
            start, num_rows = place, 0
    if _skip(_BLANK, text, place + 1) != len(text):
        json.loads(text)


def _skip(pattern: re.Pattern[str], text: str, place: int) -> int:
    match = pattern.match(text, place)
    return match.end() if match else place


MAX_ROWS = 1000
"""Most rows read from the beginning of a manifest."""
MAX_BYTES = 2 * 1024 * 1024
"""Bytes read from the beginning of a manifest."""


def first_rows(path: Path, options: RowOptions) -> list[ManifestRow]:
    """Return at most `MAX_ROWS` rows from the beginning, read by the parser of the job.

    They are fewer where the file or its beginning is damaged.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(path) as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        is_list = path.suffix.lower() != ".csv" and _first_byte(data) == b"["
        data = data[: MAX_BYTES if is_list else data.rfind(b"\n", 0, MAX_BYTES) + 1]
    rows: list[ManifestRow] = []
    with contextlib.suppress(StageConfigError):  # the job reports the place and kind of the damage
        rows.extend(itertools.islice(_rows(path, data, options), MAX_ROWS))
    return rows


def manifest_damage(path: Path, options: RowOptions) -> str | None:
    """Return why a text manifest of at most `MAX_BYTES` cannot be read completely; else None.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(path) as stream:
        data = stream.read(MAX_BYTES + 1)
        start = _first_byte(data)
        is_csv = path.suffix.lower() == ".csv"
        if len(data) > MAX_BYTES or not start or not (is_csv or start == b"["):
            return None  # blank; or JSON lines, of which a damaged one is a bad row
        stream.seek(0)
        text_format = CsvFile(path, options) if is_csv else JsonList(path, options)
        try:
            for _ in text_format.find(stream):
                pass
        except StageConfigError as error:
            return str(error).removeprefix(f"{path}")
    return None


def _first_byte(data: bytes) -> bytes:
    return data.removeprefix(_BOM).lstrip()[:1]


def _rows(path: Path, data: bytes, options: RowOptions) -> Iterator[ManifestRow]:
    text_format: TextFormat
    header: tuple[str, ...] = ()
    line = 1
    if path.suffix.lower() == ".csv":
        text_format = csv_file = CsvFile(path, options)
        lines = _Lines(io.BytesIO(data), path)
        header, num_bytes = csv_file.read_header(lines)
        data, line = data[num_bytes:], 1 + lines.place
    elif _first_byte(data) == b"{":
        text_format = JsonLines(path, options)
    elif _first_byte(data) == b"[":  # up to the first element that is damaged or truncated
        text = data.decode("utf-8-sig", errors="replace")
        decoder, place = json.JSONDecoder(), text.index("[") + 1
        for row in itertools.count():
            place = _skip(_BLANK_OR_COMMA, text, place)
            try:
                value, place = decoder.raw_decode(text, place)
            except (ValueError, RecursionError):
                return
            yield read_row(RowOrigin(row=row, line=None, manifest=path), value, options)
    else:
        return
    block = Block(first_row=0, num_rows=0, offset=0, num_bytes=0, line=line, xxh3=0)
    yield from text_format.parse(data, block, header)
