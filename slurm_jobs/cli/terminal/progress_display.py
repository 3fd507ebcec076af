"""Progress on a terminal while a user waits; nothing if there is no terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from slurm_jobs.cli.terminal.console import page_console

if TYPE_CHECKING:
    from slurm_jobs.commands.data_sets.stage_python import OnProgress


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
