"""Verbs on data sets: packing, samples, verify."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.options import (
    add_overrides,
    check_place,
    command_text,
    number_text,
    path_of,
    path_text,
    positive,
    positive_up_to,
    print_json,
    shown_path,
    whole,
)
from slurm_jobs.shared.configs.training_parts import MOST_TOKENS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from slurm_jobs.commands.data import SamplesFound, Verdict


# `slurm-jobs packing SPEC`: show padding and time of each way of batching a data set.


_DEFAULT_LIMIT_S = 60
_MOST_RANKS = 65_536
"""Limit, because the work of each is computed."""
_ROWS_ON_TERMINAL, _ROWS_IN_PICTURE = 4, 8


def add_packing_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "what",
        metavar="SPEC|RUN|FOLDER",
        type=path_text,
        nargs="?",
        help="a spec, a run, or the folder of a data set; default: the newest run",
    )
    add_overrides(parser)
    parser.add_argument("--stage", metavar="STAGE", help="the stage that trains, of several")
    parser.add_argument("--image", metavar="FILE.png", type=path_of, help="draw a picture, too")
    parser.add_argument(
        "--python",
        metavar="PROGRAM",
        type=path_text,
        help="the Python to read and time with; default: the one of the stage that trains",
    )
    tokens, ranks = positive_up_to(MOST_TOKENS), positive_up_to(_MOST_RANKS)
    num_rows = f"{_ROWS_ON_TERMINAL}, {_ROWS_IN_PICTURE} in a picture"
    for option, parse, text in (
        ("--max-tokens", tokens, "tokens of a row; default: the spec's"),
        ("--max-images", positive, "images of a row; default: the spec's"),
        ("--ranks", ranks, "default: the spec's, or 8 for a folder"),
        ("--rows", positive, f"rows to draw of each; default: {num_rows}"),
    ):
        parser.add_argument(option, metavar="N", type=parse, help=text)
    parser.add_argument("--no-timing", action="store_true", help="take no steps with the model")
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=positive,
        default=_DEFAULT_LIMIT_S,
        help=f"begin no timed step after N seconds; default: {_DEFAULT_LIMIT_S}",
    )


def run_packing(options: argparse.Namespace) -> int:
    """Compute, time, and print; exit code 1 if the spec's own way is refused."""
    from slurm_jobs.cli.options import console, progress_bar
    from slurm_jobs.commands.data import find_case, view_packing
    from slurm_jobs.shared.errors import InputError

    if options.image is not None:
        if options.image.suffix.lower() != ".png":
            message = f"--image {options.image}: pictures are PNG; name a file that ends in .png"
            raise InputError(message)
        check_place("--image", options.image)
    case = find_case(
        options.what,
        stage=options.stage,
        overrides=options.overrides,
        python=options.python,
        command_text=command_text,
    )
    with progress_bar(f"packing {shown_path(case.folder)}") as on_progress:
        view = view_packing(
            case,
            budget={"max_tokens": options.max_tokens, "max_images": options.max_images},
            num_ranks=options.ranks,
            num_rows=options.rows or max(_ROWS_ON_TERMINAL, _ROWS_IN_PICTURE),
            limit_s=None if options.no_timing else options.seconds,
            picture=options.image,
            on_progress=on_progress,
        )
    if options.json:
        print_json(view)
    else:
        print_view(view, console(), num_rows=options.rows or _ROWS_ON_TERMINAL)
        if options.image is not None:
            print(f"picture: {shown_path(options.image.absolute())}")
    return int(view["refused"] is not None)


# Results of `packing` on the terminal: a table, and rows drawn in characters.
#
# Layout only; a row's samples alternate in shade, and in colour if the terminal has any.


_WIDEST = 100
"""Characters of a drawing; wider ones show no more."""
_SHADES = "█▒"
_PADDING = "·"
_COLOURS = ("blue", "yellow", "green", "magenta")
_PADDED, _BEYOND = -1, -2


def print_view(view: Mapping[str, Any], console: Console, *, num_rows: int) -> None:
    """Print everything, with `num_rows` rows drawn for each way."""
    from rich.padding import Padding
    from rich.text import Text

    max_tokens, max_images = view["max_tokens"], view["max_images"]
    images = "" if max_images is None else f", at most {max_images} images"
    heading = (
        f"{shown_path(Path(view['folder']))}: {view['num_samples']:,} samples, rows of "
        f"{max_tokens:,} tokens{images}; {view['global_batch_size']} samples a step on "
        f"{view['num_ranks']} rank{'s' if view['num_ranks'] > 1 else ''}"
    )
    console.print(Text(heading), "", _ways_table(view), "", sep="\n")
    width = min(console.width - 2, _WIDEST)
    for way in view["ways"]:
        if way["problem"] is None:
            padding = f"{way['name']}: {100 * way['padding_share']:.1f} % padding"
            console.print(Text(f"{padding}, {way['samples_per_row']:.1f} samples a row"))
            for row in way["rows"][:num_rows]:
                drawn = row_text(row["lengths"], row["padded"], max_tokens, width)
                console.print(Padding(drawn, (0, 0, 0, 2)))
    legend = (
        f"\n{' '.join(_SHADES)} samples side by side, {_PADDING} padding; a character is "
        f"{max_tokens / width:.3g} tokens"
    )
    for line in (legend, *remarks(view)):
        console.print(Text(line))


def _ways_table(view: Mapping[str, Any]) -> Table:
    """Return a table with one line per way."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    columns = ["rows", "samples\na row", "padding\n%", "slowest\n/ mean"]
    if view["device"] is not None:
        columns += ["step\ns", "tokens\na s", "s / 1,000\nsamples"]
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for way in view["ways"]:
        cells = []
        if way["problem"] is None:
            cells = [
                f"{way['num_rows']:,}",
                f"{way['samples_per_row']:.1f}",
                f"{100 * way['padding_share']:.2f}",
                f"{way['slowest_over_mean']:.3f}",
            ]
        if way["problem"] is None and view["device"] is not None and "step_s" in way:
            cells += [
                _seconds_text(way["step_s"]),
                f"{way['tokens_per_s']:,.0f}",
                _seconds_text(way["s_per_1000_samples"]),
            ]
        name = way["name"] + (" *" if way["is_configured"] else "")
        table.add_row(name, *cells, *["-"] * (len(columns) - len(cells)))
    return table


def _seconds_text(seconds: float) -> str:
    """Format with three digits: `0.158`, `1.20`, `1,304`."""
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:#.3g}"


def row_cells(lengths: Sequence[int], padded: int, max_tokens: int, width: int) -> list[int]:
    """Return the sample in the middle of each of `width` equal parts of a row.

    The number of a sample, -1 for padding, -2 where the row has ended. A sample that is shorter
    than a part may be in none. `padded` are the row's tokens with padding, `max_tokens` those in
    the whole width.
    """
    from bisect import bisect_right
    from itertools import accumulate

    ends = list(accumulate(lengths))
    cells = []
    for number in range(width):
        token = (2 * number + 1) * max_tokens // (2 * width)
        sample = bisect_right(ends, token)
        if sample < len(ends):
            cells.append(sample)
        else:
            cells.append(_PADDED if token < padded else _BEYOND)
    return cells


def row_text(lengths: Sequence[int], padded: int, max_tokens: int, width: int) -> Text:
    """Return one row of at most `width` characters; neighbouring samples differ in shade."""
    from rich.text import Text

    drawn, number = Text(no_wrap=True), 0
    for sample, cells in groupby(row_cells(lengths, padded, max_tokens, width)):
        length = len(list(cells))
        if sample >= 0:
            drawn.append(
                _SHADES[number % len(_SHADES)] * length, style=_COLOURS[number % len(_COLOURS)]
            )
            number += 1
        elif sample == _PADDED:
            drawn.append(_PADDING * length, style="dim")
    return drawn


def remarks(view: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is needed to read the numbers, and the conclusions."""
    if view["num_looked_at"] < view["num_samples"]:
        yield f"of the first {view['num_looked_at']:,} samples in the training's random order"
    if any(way["is_configured"] for way in view["ways"]):
        yield "* as the spec's batching says"
    names: dict[str, list[str]] = {}
    for way in view["ways"]:
        if way["problem"] is not None:
            names.setdefault(way["problem"], []).append(way["name"])
    for problem, ways in names.items():
        yield f"{', '.join(ways)}: {problem}"
    if view["refused"] is not None:
        yield "a training with the spec's batching would be refused"
    shared = [w for w in view["ways"] if w.get("timed_as")]
    if shared:
        pairs = ", ".join(f"{way['name']} as {way['timed_as']}" for way in shared)
        yield f"same batches, timed once: {pairs}"
    if view["device"] is not None:
        yield (
            f"timed: forward and backward of one rank's share on {view['device']}, without "
            "reading, other ranks and the optimizer; `step` waits for the slowest rank"
        )
    yield from (f"note: {note}" for note in view["notes"])
    timed = [way for way in view["ways"] if "step_s" in way]
    if not timed:
        return
    best = min(timed, key=lambda way: way["s_per_1000_samples"])
    # A way whose fastest step beats the best one's median step may be as good.
    limit_s = best["s_per_1000_samples"] * best["fastest_over_median"]
    near = [w["name"] for w in timed if w is not best and w["s_per_1000_samples"] <= limit_s]
    alike = f", not distinguishable by these steps from {', '.join(near)}" if near else ""
    yield f"fastest here: {best['name']} (`batching: {best['batching']}`){alike}"


# `slurm-jobs samples RUN`: show samples of a data set, and audit labels and images.


_NUM_SHOWN = 3
_MOST_OF_A_KIND = 20
"""Findings of one kind that are printed; --json has more."""
_LEFT_OUT = frozenset({"unknown_keys", "samples", "findings", "num_findings"})


def _add_dataset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN|FOLDER",
        type=path_text,
        nargs="?",
        help="a run, or the folder of a data set; default: the newest run",
    )
    parser.add_argument("--stage", metavar="STAGE", help="only the data set of this stage")


def _add_reader(parser: argparse.ArgumentParser, python_help: str) -> None:
    parser.add_argument("--python", metavar="PROGRAM", type=path_text, help=python_help)
    parser.add_argument(
        "--threads", metavar="N", type=positive, help="threads that read; default: one a core"
    )


def add_samples_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    _add_dataset(parser)
    parser.add_argument(
        "--num",
        metavar="N",
        type=whole,
        default=_NUM_SHOWN,
        help=f"show N samples, the first of the (shuffled) data set; default: {_NUM_SHOWN}",
    )
    parser.add_argument(
        "--key",
        metavar="KEY",
        type=whole,
        action="append",
        default=[],
        help="show the sample of this key, the number of its row; may be repeated",
    )
    parser.add_argument("--random", metavar="SEED", type=whole, help="draw the N samples at random")
    parser.add_argument(
        "--html", metavar="FILE", type=path_of, help="write a page with pictures, and print no text"
    )
    parser.add_argument(
        "--limit", metavar="N", type=positive, help="audit the first N samples; default: all"
    )
    _add_reader(
        parser, "the Python to read with; default: the one of the stage that made the data set"
    )


def run_samples(options: argparse.Namespace) -> int:
    """Show samples and audit all; exit code 1 if there are problems."""
    from slurm_jobs.cli.options import page_console, progress_bar
    from slurm_jobs.commands.data import Wanted, find_datasets, inspect_samples
    from slurm_jobs.shared.errors import InputError

    places = find_datasets(options.run, options.stage)
    if len(places) > 1 and (options.html is not None or options.key):
        names = ", ".join(place.stage for place in places)
        message = f"--html and --key are for one data set; choose one with --stage ({names})"
        raise InputError(message)
    if options.html is not None:
        check_place("--html", options.html)
    wanted = Wanted(
        num=options.num,
        keys=tuple(dict.fromkeys(options.key)),
        random_seed=options.random,
        limit=options.limit,
        with_pictures=options.html is not None,
    )
    audits = []
    for place in places:
        with progress_bar(f"auditing {place.stage or place.folder.name}") as on_progress:
            audit = inspect_samples(
                place,
                wanted,
                python=options.python,
                num_threads=options.threads,
                on_progress=on_progress,
            )
        audits.append(audit)
        if options.html is not None:
            _write_page(options.html, audit)
        if not options.json:
            from slurm_jobs.report.samples.samples_terminal import print_samples

            print("\n".join(_head_lines(audit)))
            if options.html is None:
                print_samples(audit.samples, page_console())
                if audit.samples:
                    print()
            for line in _finding_lines(audit, options.run):
                print(line)
            if options.html is not None:
                print(f"page: {shown_path(options.html)}")
    if options.json:
        print_json({"datasets": [_audit_values(audit) for audit in audits]})
    return 1 if any(audit.num_findings for audit in audits) else 0


def _head_lines(samples: SamplesFound) -> Iterator[str]:
    """Yield a description of the data set."""
    from slurm_jobs.report.sentences import statistics_lines

    yield (
        f"{shown_path(samples.place.folder)}: {number_text(samples.num_samples, 'sample')} in "
        f"{number_text(samples.num_shards, 'shard')}"
    )
    if samples.statistics is not None:
        yield from statistics_lines(samples.statistics)


def _finding_lines(samples: SamplesFound, run_text: str | None) -> Iterator[str]:
    """Yield the results of the audit."""
    from slurm_jobs.report.samples.samples_page import problems_text
    from slurm_jobs.report.samples.visible_text import visible

    wrong = problems_text(sum(samples.num_findings.values()))
    part = (
        ""
        if samples.num_audited == samples.num_samples
        else f"the first {samples.num_audited:,} of "
    )
    yield f"audited {part}{samples.num_samples:,} samples: {wrong} found"
    for kind, num_of_kind in samples.num_findings.items():
        of_kind = (finding for finding in samples.findings if finding["kind"] == kind)
        for finding in islice(of_kind, _MOST_OF_A_KIND):
            yield f"  {finding['shard']}: sample {finding['key']}: {visible(finding['message'])}"
        if num_of_kind > _MOST_OF_A_KIND:
            yield f"  {kind}: {num_of_kind - _MOST_OF_A_KIND:,} more; --json lists them"
    if samples.findings:
        words = [run_text or str(samples.place.folder)]
        stage = (
            ["--stage", samples.place.stage] if samples.place.stage and run_text is not None else []
        )
        first = samples.findings[0]
        if first["kind"] == "unreadable":
            yield f"next: {command_text('verify', *words, *stage)}"
        else:
            words += ["--key", first["key"], *stage]
            yield f"next: {command_text('samples', *words)}"


def _write_page(path: Path, samples: SamplesFound) -> None:
    """Write the page atomically."""
    from slurm_jobs import __version__
    from slurm_jobs.report.samples.samples_page import SamplesPage, render_samples
    from slurm_jobs.shared.files import write_bytes_atomic

    page = SamplesPage(
        folder=shown_path(samples.place.folder),
        version=__version__,
        num_samples=samples.num_samples,
        num_audited=samples.num_audited,
        num_findings=sum(samples.num_findings.values()),
        findings=samples.findings,
        statistics=samples.statistics,
        samples=samples.samples,
    )
    write_bytes_atomic(path, render_samples(page).encode())


def _audit_values(samples: SamplesFound) -> dict[str, Any]:
    """Return one data set as JSON values; pictures are only on pages."""
    return {
        "folder": str(samples.place.folder),
        "stage": samples.place.stage or None,
        **{name: value for name, value in samples.values.items() if name not in _LEFT_OUT},
        "num_findings": sum(samples.num_findings.values()),
        "num_findings_by_kind": dict(samples.num_findings),
        "findings": [dict(finding) for finding in samples.findings],
        "samples": [
            {name: value for name, value in sample.items() if name != "pictures"}
            for sample in samples.values["samples"]
        ],
    }


# `slurm-jobs verify RUN`: check that a data set is what was written.


_MOST_OF_A_FILE = 20
"""Problems of one file that are printed; --json has all."""


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    _add_dataset(parser)
    _add_reader(parser, "the Python to read it with; default: the one of the stage that made it")


def run_verify(options: argparse.Namespace) -> int:
    """Verify; exit code 1 if there are problems."""
    from slurm_jobs.cli.options import progress_bar
    from slurm_jobs.commands.data import find_datasets, verify

    verdicts = []
    for place in find_datasets(options.run, options.stage):
        with progress_bar(f"verifying {shown_path(place.folder)}") as on_progress:
            verdict = verify(
                place,
                python=options.python,
                num_threads=options.threads,
                command_text=command_text,
                on_progress=on_progress,
            )
        verdicts.append(verdict)
        if not options.json:
            for line in verdict_lines(verdict):
                print(line)
    if options.json:
        print_json({"datasets": [_verdict_values(verdict) for verdict in verdicts]})
    return 1 if any(verdict.problems for verdict in verdicts) else 0


def verdict_lines(verdict: Verdict) -> Iterator[str]:
    """Yield the terminal output for one data set."""
    counts, size = verdict.counts, ""
    if counts:
        size = (
            f"{number_text(counts['num_samples'], 'sample')} in "
            f"{number_text(counts['num_shards'], 'shard')}, {_size_text(counts['num_bytes'])}: "
        )
    problems = number_text(len(verdict.problems), "problem")
    yield f"{shown_path(verdict.place.folder)}: {size}{problems} found"
    for file, group in groupby(verdict.problems, key=lambda problem: problem["file"]):
        listed = list(group)
        for problem in listed[:_MOST_OF_A_FILE]:
            sample = f"sample {problem['key']}: " if problem["key"] is not None else ""
            yield f"  {file}: {sample}{problem['message']}"
        if len(listed) > _MOST_OF_A_FILE:
            more = number_text(len(listed) - _MOST_OF_A_FILE, "more problem")
            yield f"  {file}: {more}; --json lists all"
    if verdict.remedy:
        yield f"next: {verdict.remedy}"
    if verdict.effect:
        yield f"      {verdict.effect}"


def _size_text(num_bytes: int) -> str:
    size = float(num_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.4g} TB"


def _verdict_values(verdict: Verdict) -> dict[str, Any]:
    """Return one data set as JSON values."""
    problems: Sequence[Any] = verdict.problems
    return {
        "folder": str(verdict.place.folder),
        "stage": verdict.place.stage or None,
        **verdict.counts,
        "num_problems": len(problems),
        "problems": [dict(problem) for problem in problems],
        "remedy": verdict.remedy or None,
        "effect": verdict.effect or None,
    }
