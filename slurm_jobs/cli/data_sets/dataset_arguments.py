"""Arguments of the verbs that read a data set."""

from __future__ import annotations

import argparse

from slurm_jobs.cli.arguments import path_text, positive


def add_dataset(parser: argparse.ArgumentParser) -> None:
    """Add DATASET and --stage."""
    parser.add_argument(
        "run",
        metavar="RUN|FOLDER",
        type=path_text,
        nargs="?",
        help="a run, or the folder of a data set; default: the newest run",
    )
    parser.add_argument("--stage", metavar="STAGE", help="only the data set of this stage")


def add_reader(parser: argparse.ArgumentParser, python_help: str) -> None:
    """Add --python and --threads."""
    parser.add_argument("--python", metavar="PROGRAM", type=path_text, help=python_help)
    parser.add_argument(
        "--threads", metavar="N", type=positive, help="threads that read; default: one a core"
    )
