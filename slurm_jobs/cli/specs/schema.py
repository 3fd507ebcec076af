"""`slurm-jobs schema`: print the JSON Schema of specs, or of cluster profiles."""

from __future__ import annotations

import argparse

from slurm_jobs.cli.terminal.console import print_json


def add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--profile", action="store_true", help="the schema of cluster profiles instead"
    )


def run_schema(options: argparse.Namespace) -> int:
    """Print it."""
    from slurm_jobs.commands.spec_reading.json_schema import profile_schema, spec_schema

    print_json(profile_schema() if options.profile else spec_schema())
    return 0
