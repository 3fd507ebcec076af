"""Text manifests: CSV, JSON lines, and LLaVA's JSON list."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.manifests.keys import shorten
from slurm_jobs.shared.manifests.messages import ManifestRow, RowOrigin, bad_row
from slurm_jobs.shared.manifests.values import TOO_DEEP, RowOptions, read_row

# Detection of CSV rows inside an unclosed quote: texts whose lines look like rows.
#
# An unclosed quote ends at the next one, perhaps an inch mark a thousand rows later, and the
# result is valid CSV. So the lines of each text are checked.


_IMAGE_NAME = re.compile(
    r"\.(avif|bmp|gif|heic|jp2|jpe|jpeg|jpg|png|ppm|tif|tiff|webp)$", re.IGNORECASE
)
_FEWEST_LINES = 5
"""Fewest lines that look like rows, and from which they must outnumber the others."""


def find_row(lines: Sequence[str], num_columns: int, column: int) -> str:
    """Return a line that is a complete row, for a message; empty if there is none.

    `lines` are those of a text, except its first. A row has `num_columns` cells and names a picture
    in `column`, as rows do. Names without an ending count only if most lines have such names. Poems
    are not taken for rows, because their lines have blanks there.
    """
    if not lines:
        return ""
    found = []
    for line, cells in zip(lines, _cells(lines), strict=True):
        name = cells[column].strip() if len(cells) == num_columns else ""
        if _IMAGE_NAME.search(name):
            return shorten(line.rstrip())
        if name and not any(character.isspace() for character in name):
            found.append(line)
    is_most = len(lines) >= _FEWEST_LINES and 2 * len(found) > len(lines)
    return shorten(found[0].rstrip()) if is_most else ""


def _cells(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the cells of each line, parsed alone as far as possible."""
    for line in lines:
        try:
            yield next(csv.reader([line]), [])
        except csv.Error:
            yield []


# Blocks of a text manifest, and the interface of each text format.


BLOCK_BYTES = 4 * 1024 * 1024
"""Smallest size of a block; a slice parses at most this much before its first row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Run of whole rows, as a format finds it in a file."""

    offset: int
    data: bytes
    num_rows: int
    line: int
    """Line of its first byte, from 1."""
    header: tuple[str, ...] = ()
    """Names of columns, if the format has them; only in the first block."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Run of whole rows, in the index."""

    first_row: int
    num_rows: int
    offset: int
    num_bytes: int
    line: int
    xxh3: int


class TextFormat(Protocol):
    """Parser of a format: bounds of rows, and their content."""

    path: Path

    def find(self, stream: IO[bytes]) -> Iterator[Found]:
        """Yield the blocks of the file in order; raise StageConfigError if it has another format.

        `stream` is the file at `path`.
        """
        ...

    def parse(self, data: bytes, block: Block, header: tuple[str, ...], /) -> Iterator[ManifestRow]:
        """Yield the rows of a block."""
        ...


# CSV whose first line names its columns; a quoted text may contain line breaks.


_BOM = b"\xef\xbb\xbf"
_MOST_CHARACTERS = 2**31 - 1
"""Longest cell: the maximum of a C long on every platform."""
_LOOK_AT_CHARACTERS = 131_072
"""Longest cell that is read at first: the library's own limit. A longer one is checked before more
is read, because it may be an unclosed quote that contains all rows up to the next quote."""

_CUT = "a carriage return (\\r) in the middle of the row; put a text that has one in double quotes"


class _Lines:
    """Lines of a stream, some megabytes at a time, as the reader of records requests them."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream = stream
        self._path = path
        self._has_newlines = _has_newlines(path)
        self._waiting: deque[str] = deque()
        """Rest of the last returned line of bytes: a carriage return ends a line, too."""
        self._place = 0
        self.taken: list[bytes] = []
        """Lines of bytes since the last `refill`, returned or not."""
        self.num_given_bytes = 0
        """Bytes returned since the last `refill`."""
        self.last = ""
        """Line that was returned last."""

    def refill(self) -> list[bytes]:
        """Discard the lines taken, all of which were returned, and take the next ones."""
        assert self.is_over
        self.taken = self._stream.readlines(BLOCK_BYTES)
        self._place = self.num_given_bytes = 0
        return self.taken

    @property
    def is_over(self) -> bool:
        """Return whether all lines taken were returned."""
        return not self._waiting and self._place == len(self.taken)

    def skip_all_plain(self) -> list[bytes]:
        """Return the remaining lines taken, if each is certainly a complete record."""
        rest = self.taken[self._place :]
        data = b"".join(rest)
        if self._waiting or b'"' in data or data.count(b"\r") != data.count(b"\r\n"):
            return []
        self._place = len(self.taken)
        return rest

    def skip_plain(self) -> bytes | None:
        """Return the next line if it is certainly a complete record; else None."""
        line = self.taken[self._place] if not self._waiting else b'"'
        if b'"' in line or b"\r" in line.removesuffix(b"\r\n"):
            return None
        self._place += 1
        return line

    def drop_rest(self) -> bool:
        """Return whether the last record continues after a carriage return of its line.

        The rest of the line is then skipped. A file without any newline has carriage returns
        instead; two of them and a newline, which Windows may write, end a line.
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
            if self._place == len(self.taken):  # a record continues after the lines taken
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
    """Format CSV."""

    def __init__(self, path: Path, options: RowOptions) -> None:
        self.path = path
        self._options = options

    def find(self, stream: IO[bytes]) -> Iterator[Found]:
        """Yield blocks of whole records, without the first line.

        Raises:
            StageConfigError: a column is missing, a quote is not closed, or the file is not UTF-8.
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
        """Yield the rows of a block; one with too many or too few cells is a bad row."""
        lines = _Lines(io.BytesIO(data), self.path)
        shape = self._shape(header)
        row, line = block.first_row, block.line
        while True:
            cells, num_lines = _read_record(lines, self.path, line, shape)
            if cells is None:
                return
            if cells:  # an empty line is no row
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
        """Return the cells of the first line, and the line after it."""
        first, num_lines = _read_record(lines, self.path, 1)
        header = tuple(first if isinstance(first, list) else [""])
        if isinstance(first, str):
            message = f"{self.path}:1: {first}"
            raise StageConfigError(message)
        self._shape(header)
        return header, 1 + num_lines

    def _shape(self, header: tuple[str, ...]) -> _Shape | None:
        """Return the form of rows with this header; None without a column of pictures.

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
    """Count rows and lines that were taken and not returned; complete the last record."""
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
    """Return the cells of the next record, or its error, and the number of its lines.

    None at the end. A wrong record with an even number of quotes ends with its line. So does one
    that a carriage return outside of quotes would cut.
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
    # With an odd quote, or over lines, an open quote may contain any of the following rows.
    if len(taken) == 1 and lines.last.count('"') % 2 == 0:
        lines.drop_rest()
        return f"no CSV ({found})", 1
    raise StageConfigError(_not_closed(path, line, f"{found} at line {line + len(taken) - 1}"))


def _lines_within(found: list[str] | csv.Error | None) -> list[str]:
    """Return the lines of the cells, except the first of each."""
    cells = found if isinstance(found, list) else []
    return [line for cell in cells for line in cell.splitlines()[1:]]


def _check_text(within: Sequence[str], shape: _Shape | None, path: Path, line: int) -> None:
    row = find_row(within, *shape) if shape else ""
    if row:
        problem = f"its text has several lines, and one of them is a complete row: {row}"
        message = f"{_not_closed(path, line, problem)}; a text that is meant so: as JSON lines"
        raise StageConfigError(message)


def _kept(lines: _Lines, taken: list[str]) -> Iterator[str]:
    """Yield the lines, and append each to `taken`."""
    for line in lines:
        taken.append(line)
        yield line


def _not_closed(path: Path, line: int, problem: str) -> str:
    return (
        f"{path}:{line}: the row that begins here is no CSV ({problem}); a double quote that opens "
        f"a text must be closed, and one within it written twice"
    )


def decoded(data: bytes, path: Path) -> str:
    """Decode bytes of the file.

    Raises:
        StageConfigError: they are not UTF-8; the message has the line.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        at, problem = _first_undecodable_line(path)
        message = f"{path}:{at}: no UTF-8 ({problem}); save the manifest as UTF-8"
        raise StageConfigError(message) from error


def _first_undecodable_line(path: Path) -> tuple[int, str]:
    """Return the number of the first line that is not UTF-8, from 1, and the error."""
    with path.open("rb") as stream:
        for line_index, line in enumerate(stream):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return line_index + 1, f"byte 0x{line[error.start]:02x}: {error.reason}"
    message = f"{path} was changed while it was read"
    raise StageConfigError(message)


# JSON lines: one row in each line; blank lines are skipped.


class JsonLines:
    """Format JSON lines."""

    def __init__(self, path: Path, options: RowOptions) -> None:
        self.path = path
        self._options = options

    def find(self, stream: IO[bytes]) -> Iterator[Found]:
        """Yield blocks of whole lines."""
        offset, line = 0, 1
        while lines := stream.readlines(BLOCK_BYTES):
            num_blank = sum(map(bytes.isspace, lines))
            data = b"".join(lines)
            if _BOM in data:
                num_blank = sum(not _content(text) for text in lines)
            yield Found(offset=offset, data=data, num_rows=len(lines) - num_blank, line=line)
            offset, line = offset + len(data), line + len(lines)

    def parse(
        self, data: bytes, block: Block, _header: tuple[str, ...], /
    ) -> Iterator[ManifestRow]:
        """Yield the rows of a block; a line that is not JSON is a bad row."""
        row = block.first_row
        for index, line in enumerate(data.split(b"\n")):
            text = _content(line)
            if text:
                origin = RowOrigin(row=row, line=block.line + index, manifest=self.path)
                yield _row(origin, text, self._options)
                row += 1


def _content(line: bytes) -> bytes:
    return line.removeprefix(_BOM).strip()


def _row(origin: RowOrigin, text: bytes, options: RowOptions) -> ManifestRow:
    try:
        return read_row(origin, json.loads(text), options)
    except ValueError as error:
        return bad_row(origin, f"no valid JSON ({error})")
    except RecursionError:
        return bad_row(origin, TOO_DEEP)


# LLaVA's JSON: one list of rows. It is parsed whole once; later each block is parsed alone.


_BLANK = re.compile(r"[ \t\n\r]*")


class JsonList:
    """Format of one JSON list."""

    def __init__(self, path: Path, options: RowOptions) -> None:
        self.path = path
        self._options = options

    def find(self, stream: IO[bytes]) -> Iterator[Found]:
        """Yield blocks of whole elements, including the commas between them.

        Raises:
            StageConfigError: the JSON is invalid anywhere.
        """
        data = stream.read()
        try:
            text = data.removeprefix(_BOM).decode("utf-8")
            offset, place = len(data) - len(data.removeprefix(_BOM)), 0
            for start, end, num_rows in _runs(text):
                offset += len(text[place:start].encode())
                block = text[start:end].encode()
                yield Found(offset=offset, data=block, num_rows=num_rows, line=1)
                offset, place = offset + len(block), end
        except ValueError as error:
            message = f"{self.path}: starts like a JSON list but is not valid JSON ({error})"
            raise StageConfigError(message) from error
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
    return StageConfigError(
        f"{path}: {TOO_DEEP}; as JSON lines only the row at fault would be left out"
    )


def _runs(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and number of elements of each run.

    Raises:
        ValueError: the text is no list; the message is that of `json`.
    """
    decoder = json.JSONDecoder()
    place = _skip(text, _skip(text, 0) + 1)
    if text[place : place + 1] == "]":
        _check_end(text, place)
        return
    start, num_rows = place, 0
    while True:
        try:
            _, end = decoder.raw_decode(text, place)
        except json.JSONDecodeError:
            json.loads(text)  # raises with the error of the whole list
            raise
        num_rows += 1
        place = _skip(text, end)
        mark = text[place : place + 1]
        if mark == "]":
            yield start, end, num_rows
            _check_end(text, place)
            return
        if mark != ",":
            json.loads(text)
        place = _skip(text, place + 1)
        if end - start >= BLOCK_BYTES:
            yield start, end, num_rows
            start, num_rows = place, 0


def _skip(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found else place


def _check_end(text: str, place: int) -> None:
    if _skip(text, place + 1) != len(text):
        json.loads(text)


# First rows of a text manifest, read from its beginning by the parser of the job.


MAX_ROWS = 1000
MAX_BYTES = 2 * 1024 * 1024
"""Bytes read from a manifest."""
_BETWEEN = " \t\r\n,"


def first_rows(path: Path, options: RowOptions) -> list[ManifestRow]:
    """Return at most `MAX_ROWS` rows; fewer where the file or its beginning is damaged.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    is_whole = len(data) <= MAX_BYTES
    if not is_whole:
        data = data[:MAX_BYTES]
    rows: list[ManifestRow] = []
    try:
        rows.extend(itertools.islice(_rows(path, data, options, is_whole=is_whole), MAX_ROWS))
    except StageConfigError:  # the job reports the place and kind of the damage
        return rows
    return rows


def manifest_damage(path: Path, options: RowOptions) -> str:
    """Return why a text manifest of at most `MAX_BYTES` cannot be read completely; else "".

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
        start = data.removeprefix(_BOM).lstrip()[:1]
        is_csv = path.suffix.lower() == ".csv"
        if len(data) > MAX_BYTES or not start or not (is_csv or start == b"["):
            return ""  # blank; or JSON lines, of which a damaged one is a bad row
        stream.seek(0)
        text_format = CsvFile(path, options) if is_csv else JsonList(path, options)
        try:
            for _ in text_format.find(stream):
                pass
        except StageConfigError as error:
            return str(error).removeprefix(f"{path}")
    return ""


def _rows(path: Path, data: bytes, options: RowOptions, *, is_whole: bool) -> Iterator[ManifestRow]:
    start = data.removeprefix(_BOM).lstrip()[:1]
    if path.suffix.lower() != ".csv" and start == b"[":
        for number, value in enumerate(_elements(data)):
            yield read_row(RowOrigin(row=number, line=None, manifest=path), value, options)
        return
    lines = data if is_whole else data[: data.rfind(b"\n") + 1]
    if path.suffix.lower() == ".csv":
        yield from _csv_rows(CsvFile(path, options), lines)
    elif start == b"{":
        yield from JsonLines(path, options).parse(lines, _block(line=1), ())


def _csv_rows(text_format: CsvFile, data: bytes) -> Iterator[ManifestRow]:
    header, line, num_bytes = text_format.read_header(io.BytesIO(data))
    yield from text_format.parse(data[num_bytes:], _block(line=line), header)


def _block(*, line: int) -> Block:
    return Block(first_row=0, num_rows=0, offset=0, num_bytes=0, line=line, xxh3=0)


def _elements(data: bytes) -> Iterator[Any]:
    """Yield the values of a JSON list, up to the first that is damaged or truncated."""
    text = data.decode("utf-8-sig", errors="replace")
    decoder, place = json.JSONDecoder(), text.index("[") + 1
    while True:
        while place < len(text) and text[place] in _BETWEEN:
            place += 1
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return
        yield value
