"""Samples in a terminal: their text, with supervised tokens in colour or between marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from slurm_jobs.report.samples.sample_values import ShownSample, TokenRun
from slurm_jobs.report.samples.visible_text import image_text, is_hidden, visible

_MARKS = (("[[[", "]]]"), ("{{{", "}}}"), (">>>", "<<<"), ("(((", ")))"))
_SUPERVISED = "bold green"
_WRONG = "bold red"
_IMAGE = "cyan"
_ESCAPE = "dim"
_INDENT = 2


def print_samples(samples: Sequence[ShownSample], console: Console) -> None:
    """Print the samples, each after an empty line.

    A terminal with colours shows supervised tokens in green. Without colours they are between two
    marks that occur in none of the texts. Lines are wrapped only on a terminal.
    """
    has_colours = console.color_system is not None and not console.no_color
    marks = None if has_colours else choose_marks(samples)
    if samples:
        how = "in green" if marks is None else f"between {marks[0]} and {marks[1]}"
        _print(console, Text(f"supervised tokens are {how}", style="dim"))
    for sample in samples:
        console.print()
        for line in _head(sample):
            _print(console, line)
        for line in text_lines(sample.runs, marks):
            _print(console, line, indent=_INDENT)


def _print(console: Console, line: Text, *, indent: int = 0) -> None:
    """Print a line; on a terminal, wrap it to the width and indent it as a whole."""
    wrapped = [line]
    if console.is_terminal:
        wrapped = list(line.wrap(console, max(20, console.width - indent), tab_size=1))
    for part in wrapped:
        row = Text(" " * indent)
        row.append_text(part)
        row.rstrip()
        console.print(row, soft_wrap=True, highlight=False)


def choose_marks(samples: Iterable[ShownSample]) -> tuple[str, str]:
    """Return two marks that no sample contains; the first ones, if all are used."""
    texts = ["".join(run.text for run in sample.runs) for sample in samples]
    for marks in _MARKS:
        if not any(mark in text for mark in marks for text in texts):
            return marks
    return _MARKS[0]


def _head(sample: ShownSample) -> list[Text]:
    title = Text(f"sample {sample.key}", style="bold")
    title.append(f"  {visible(sample.source)}  ({sample.shard})", style="not bold")
    if sample.problem is not None:
        return [title, Text(f"  {visible(sample.problem)}", style=_WRONG)]
    images = "; ".join(image_text(image) for image in sample.images)
    num = len(sample.images)
    counts = (
        f"  {sample.num_tokens:,} tokens, {sample.num_supervised_tokens:,} supervised, "
        f"{sample.num_image_tokens:,} of images{', cut' if sample.is_truncated else ''}; "
        f"{num or 'no'} image{'' if num == 1 else 's'}{': ' + images if images else ''}"
    )
    return [title, Text(counts, style="dim")]


def text_lines(runs: Sequence[TokenRun], marks: tuple[str, str] | None) -> list[Text]:
    """Return the sample's text line by line; `marks` replace colours if given."""
    lines = [Text()]
    was_supervised = False
    for run in runs:
        if marks is not None and run.is_supervised != was_supervised:
            lines[-1].append(marks[0] if run.is_supervised else marks[1])
        was_supervised = run.is_supervised
        style = _SUPERVISED if run.is_supervised else ""
        if run.is_image:
            style = _WRONG if run.is_supervised else _IMAGE
            pieces = [f"({run.text} x {run.num})" if run.num > 1 else run.text]
        else:
            *whole, last = run.text.split("\n")
            pieces = [*(f"{line}\n" for line in whole), last]
        for number, piece in enumerate(pieces):
            if number:
                lines.append(Text())
            for is_code, chars in groupby(piece, key=is_hidden):
                shown = visible("".join(chars))
                lines[-1].append(shown, style=f"{style} {_ESCAPE}".strip() if is_code else style)
    if marks is not None and was_supervised:
        lines[-1].append(marks[1])
    return lines if lines[-1].plain else lines[:-1]
