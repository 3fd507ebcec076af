"""Arguments and output that the verbs share."""

from __future__ import annotations

import argparse
import errno
import functools
import os
import re
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from slurm_jobs.shared.errors import (
    STEERING,
    InputError,
    PathExpansionError,
    Problem,
    escaped_json,
    plain,
    truncated_lines,
)
from slurm_jobs.shared.expand import expand_typed
from slurm_jobs.shared.files import dump_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from slurm_jobs.commands.data import OnProgress


# Arguments and formatting that several commands share.


def path_text(text: str) -> str:
    """Expand `~` and variables that the shell has left in a typed path, for argparse."""
    try:
        return expand_typed(text)
    except PathExpansionError as error:
        message = f"{text}: {error}"
        raise argparse.ArgumentTypeError(message) from error


def path_of(text: str) -> Path:
    """Return the same as a Path, for argparse."""
    return Path(path_text(text))


def add_spec(parser: argparse.ArgumentParser) -> None:
    """Add SPEC, --set and --limit."""
    parser.add_argument("spec", metavar="SPEC", type=path_of, help="the YAML file")
    add_overrides(parser)
    parser.add_argument(
        "--limit",
        metavar="N",
        type=positive,
        help="run the whole chain on the first N samples of the manifest",
    )


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add --set."""
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a value of the spec, such as stages.train.resources.nodes=1; may be repeated",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add RUN."""
    parser.add_argument("run", metavar="RUN", nargs="?", help="default: the newest run")


def check_place(option: str, path: Path) -> None:
    """Refuse a value of an option, a file that cannot be written, before the work for it starts.

    Raises:
        InputError: its folder does not exist or refuses new files, or it is a folder itself.
    """
    folder = path.absolute().parent
    problem = ""
    if path.is_dir():
        problem = "this is a folder; name a file"
    elif not folder.is_dir():
        problem = f"there is no folder {folder}; make it, or name another file"
    elif not os.access(folder, os.W_OK | os.X_OK):
        problem = f"you cannot write in {folder}; name another file"
    if problem:
        message = f"{option} {path}: {problem}"
        raise InputError(message)


def check_new(option: str, path: Path, spec: Path) -> None:
    """Refuse a value of an option, a file that exists or is the spec; see also `check_place`.

    Raises:
        InputError: it exists, or can never be written.
    """
    check_place(option, path)
    problem = ""
    if spec.exists() and path.exists() and path.samefile(spec):
        problem = "this is the spec itself, which is not replaced; name a new file"
    elif os.path.lexists(path):
        problem = "this file exists already; name a new one, or move it away"
    if problem:
        message = f"{option} {path}: {problem}"
        raise InputError(message)


def whole(text: str) -> int:
    """Parse a whole number, 0 included, for argparse."""
    if not text.isdecimal():
        message = f"{text} is not a whole number of 0 or more"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def positive(text: str, *, most: int | None = None) -> int:
    """Parse a whole number above 0, for argparse."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        message = f"{text} is not a whole number above 0"
        raise argparse.ArgumentTypeError(message)
    if most is not None and number > most:
        message = f"{text} is more than {most:,}"
        raise argparse.ArgumentTypeError(message)
    return number


def positive_up_to(most: int) -> Callable[[str], int]:
    """Return a parser like `positive` with a maximum."""
    return functools.partial(positive, most=most)


def print_json(value: object) -> None:
    """Print a result for programs."""
    print(escaped_json(dump_json(value)), end="")


def number_text(number: int, word: str) -> str:
    """Return `no shards`, `1 shard`, `1,234 shards`."""
    return f"{f'{number:,}' if number else 'no'} {word}{'' if number == 1 else 's'}"


def duration_text(seconds: float) -> str:
    """Return `47 s`, `3 min 20 s`, `2 h 05 min`, `3 d 02 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def age_text(unix_s: float, now_unix_s: float) -> str:
    """Return how long ago a time was."""
    return f"{duration_text(max(0.0, now_unix_s - unix_s))} ago"


def clock_text(unix_s: float, now_unix_s: float) -> str:
    """Return a time in this machine's zone, with the date if it is not today: `14:32`."""
    moment, now = time.localtime(unix_s), time.localtime(now_unix_s)
    is_today = moment[:3] == now[:3]
    return time.strftime("%H:%M" if is_today else "%a %d %b %H:%M", moment)


def command_text(*words: str) -> str:
    """Return a command to type here, with words quoted for the shell.

    It calls this program by name if PATH has it, otherwise as it was called.
    """
    called = Path(sys.argv[0])
    program = f"{shlex.quote(sys.executable)} -m slurm_jobs"
    if called.name == "slurm-jobs":
        on_path = shutil.which("slurm-jobs")
        is_ours = on_path is not None and Path(on_path).resolve() == called.resolve()
        program = "slurm-jobs" if is_ours else shlex.quote(shown_path(called.absolute()))
    return f"{program} {shlex.join(words)}"


def shown_path(path: Path) -> str:
    """Return a path relative to the working folder if that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def short_note(note: str) -> str:
    """Shorten the path in a note that may begin with a place in a file."""
    return note.removeprefix(f"{Path.cwd()}/")


def with_short_path(problem: Problem) -> Problem:
    """Return a problem whose file is named as the user would type it."""
    is_file = problem.file.startswith("/")
    return problem.changed(file=shown_path(Path(problem.file))) if is_file else problem


# Guard of the user's terminal against control characters in untrusted text.
#
# Names of runs and nodes, reasons, notes and log lines may come from a manifest, a colleague's
# files or a program's output. All output goes through `GuardedStream`, which writes escape
# sequences and characters that change the direction of writing as codes (`\\x1b`, `\\u202e`).
# Tables are guarded cell by cell (`page_console`), because rich's colours are escape
# sequences, too. Only logs keep what their programs wrote: completely if no terminal reads them,
# colours on a terminal.


_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_IN_A_LOG = re.compile(f"{_COLOUR.pattern}|\r|{STEERING.pattern}")


class GuardedStream:
    """Stream that replaces control characters."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write the guarded text."""
        self.unguarded.write(plain(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


class _LogStream(GuardedStream):
    """Stream of a terminal on which a log may have colours and carriage returns."""

    def __init__(self, stream: TextIO, *, with_colours: bool) -> None:
        super().__init__(stream)
        self._with_colours = with_colours

    def write(self, text: str) -> int:
        self.unguarded.write(_IN_A_LOG.sub(self._kept, text))
        return len(text)

    def _kept(self, match: re.Match[str]) -> str:
        if match[0] == "\r":
            return "\r"
        if _COLOUR.fullmatch(match[0]):
            return match[0] if self._with_colours else ""
        return plain(match[0])


def guard_streams() -> None:
    """Guard standard output and error from here on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, GuardedStream):
            setattr(sys, name, GuardedStream(stream))


def unguarded(stream: TextIO) -> TextIO:
    """Return the stream without guard, for callers that guard in another way."""
    return stream.unguarded if isinstance(stream, GuardedStream) else stream


def log_output() -> TextIO:
    """Return standard output for log lines; NO_COLOR and TERM=dumb remove their colours."""
    stream = unguarded(sys.stdout)
    if not stream.isatty():
        return stream
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    return cast("TextIO", _LogStream(stream, with_colours=not is_plain))


# Output of commands: a console for tables, and a stream whose reader may leave.


WIDTH_OF_A_PIPE = 160
_WIDER_THAN_ANY = 100_000


def console() -> Console:
    """Return a console of the terminal's width; wide enough for whole lines in a file."""
    screen = page_console()
    if screen.is_terminal or "COLUMNS" in os.environ:
        return screen
    return page_console(width=WIDTH_OF_A_PIPE)


def page_console(width: int | None = None, *, stderr: bool = False) -> Console:
    """Return a console of the given width, the terminal's, or 80 columns, with guarded text.

    A reader that has left raises BrokenPipeError, as with `print`; rich would exit with code 1,
    which means here that the run failed.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class LeavableConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            # rich copies the rest of a text for each line that it wraps
            if isinstance(renderable, str | Text):
                whole = str(renderable)
                short = truncated_lines(whole)
                renderable = renderable if short == whole else Text(short)
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else plain(text), style, control)

    stream = sys.stderr if stderr else sys.stdout
    return LeavableConsole(width=width, file=unguarded(stream))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return a table of plain cells, which are wrapped only if the screen is too narrow."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*[Text(cell) if isinstance(cell, str) else cell for cell in row])
    return table


def fits_screen(table: Table, screen: Console) -> bool:
    """Check whether the table fits the screen without wrapping a cell."""
    without_end = screen.options.update_width(_WIDER_THAN_ANY)
    return screen.measure(table, options=without_end).maximum <= screen.width


def keep_on_writing() -> None:
    """Continue from here on even if the reader of standard output leaves."""
    leavable = cast("TextIO", LeavableStream(unguarded(sys.stdout)))
    sys.stdout = cast("TextIO", GuardedStream(leavable))


class LeavableStream:
    """Stream whose reader (head, less) may leave while the command continues."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write; discard the text if the reader has left."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._discard_output()
            return len(text)

    def flush(self) -> None:
        """Flush; do nothing if the reader has left."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard_output()

    def _discard_output(self) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


# Progress on a terminal while a user waits; nothing if there is no terminal.


_PATIENCE_S = 1.0
"""Shorter work is not announced: a message that disappears at once is noise."""


@contextmanager
def working(words: str) -> Iterator[None]:
    """Show words and a spinner on standard error while the block runs, after one second."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    status = Live(
        Spinner("line", Text(f"{words} ... (Ctrl-C ends it)")),
        console=page_console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    starter = threading.Timer(_PATIENCE_S, status.start)
    starter.daemon = True
    starter.start()
    try:
        yield
    finally:
        starter.cancel()
        starter.join()
        status.stop()


@contextmanager
def progress_bar(title: str) -> Iterator[OnProgress]:
    """Show a bar on standard error while the block runs; yield its update function."""
    if not sys.stderr.isatty():
        yield lambda _done, _total, _unit: None
        return
    from rich.filesize import decimal
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[words]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=page_console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, words="")

        def move(done: int, total: int, unit: str) -> None:
            words = f"{done}/{total} {unit}"
            if unit == "bytes":
                words = f"{decimal(done)} of {decimal(total)}"
            bar.update(task, completed=done, total=total, words=words)

        yield move
