"""`slurm-jobs packing SPEC`: show padding and time of each way of batching a data set."""

from __future__ import annotations

import argparse

from slurm_jobs.cli.arguments import (
    add_overrides,
    check_place,
    path_of,
    path_text,
    positive,
    positive_up_to,
)
from slurm_jobs.cli.data_sets.packing_view import print_view
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path
from slurm_jobs.formats.configs.training_parts import MOST_TOKENS

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
    from slurm_jobs.base.errors import InputError
    from slurm_jobs.cli.terminal.console import console
    from slurm_jobs.cli.terminal.progress_display import progress_bar
    from slurm_jobs.commands.data_sets.packing_case import find_case, view_packing

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
