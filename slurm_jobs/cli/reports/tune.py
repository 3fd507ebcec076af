"""`slurm-jobs tune SPEC`: try what the report's findings name, and keep what is surely faster."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.base.redact import hidden_setting
from slurm_jobs.cli.arguments import add_overrides, check_new, path_of, path_text, positive
from slurm_jobs.cli.reports.tuning_screen import render
from slurm_jobs.cli.run_view.follow_run import watch
from slurm_jobs.cli.run_view.problems import problem_lines
from slurm_jobs.cli.run_view.status_json import status_values
from slurm_jobs.cli.specs.submit import job_printer, print_submission
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path

if TYPE_CHECKING:
    from slurm_jobs.commands.tuned_spec import TunedSpec
    from slurm_jobs.commands.tuning_spec import TuneRun


def add_tune_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "target",
        metavar="SPEC",
        type=path_text,
        help="the YAML file; or a run that tune has made, whose result is printed again",
    )
    parser.add_argument("--stage", metavar="NAME", help="the training, where the spec has several")
    parser.add_argument(
        "--budget",
        metavar="MIN",
        type=_minutes,
        help="minutes for all trials together (default: 30)",
    )
    add_overrides(parser)
    parser.add_argument(
        "--limit", metavar="N", type=positive, help="as for `submit`: only the first N samples"
    )
    parser.add_argument(
        "--data",
        metavar="RUN",
        type=path_text,
        help="a finished run whose data set is used, instead of making one",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=path_of,
        help="copy the new spec to a new FILE",
    )


def _minutes(text: str) -> float:
    """Parse a number above 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e5:
        message = f"{text} is not a number of minutes above 0"
        raise argparse.ArgumentTypeError(message)
    return value


def run_tune(options: argparse.Namespace) -> int:
    """Submit, wait, and print the result; exit code 1 if the run failed."""
    from slurm_jobs.commands.run_search.find_run import find_run, given_run
    from slurm_jobs.commands.spec_reading.read_spec import load
    from slurm_jobs.commands.submit import submit
    from slurm_jobs.commands.tuning_spec import TuningOptions, read_tune_run, tuning_spec

    spec_file = Path(options.target)
    if options.out is not None:
        check_new("--out", options.out, spec_file)
    of_spec = {
        "--stage": options.stage,
        "--budget": options.budget,
        "--set": options.overrides,
        "--limit": options.limit,
        "--data": options.data,
    }
    run_dir = given_run(options.target, of_spec, "tune")
    if run_dir is None:
        loaded = load(spec_file, overrides=options.overrides, limit=options.limit, to_submit=True)
        wanted = TuningOptions(
            stage=options.stage,
            budget_min=options.budget or 30.0,
            data_run=None if options.data is None else find_run(options.data),
        )
        submission = submit(tuning_spec(loaded, wanted), on_job=job_printer(options))
        run_dir = submission.paths.run_dir
        if not options.json:
            print_submission(submission)
            print(flush=True)
    tuned = read_tune_run(run_dir)
    if not _is_final(tuned):
        status, code = watch(run_dir, quiet=options.json, prints_failures=False)
        if status is None:
            out = [] if options.out is None else ["--out", str(options.out)]
            again = command_text("tune", shown_path(run_dir), *out)
            print(f"to show the result when the tuning has ended: {again}", file=sys.stderr)
        elif status.status != "completed" and options.json:
            print_json(status_values(run_dir, status, time.time()))
        elif status.status != "completed":
            for line in problem_lines(run_dir, status, with_logs=True):
                print(line, file=sys.stderr)
        if code != 0 or not tuned.result_path.exists():
            return code or 1
    _print_result(options, tuned)
    return 0


def _print_result(options: argparse.Namespace, tuned: TuneRun) -> None:
    """Print the result, and write the new spec if a change was kept."""
    from slurm_jobs.base.files import read_json
    from slurm_jobs.cli.terminal.console import console
    from slurm_jobs.commands.tuned_spec import write_tuned_spec

    run_dir, result = tuned.paths.run_dir, read_json(tuned.result_path)
    if not options.json:
        console().print(render(result))
        print(flush=True)
    kept_knobs = () if result.get("is_taken_back") else result["kept"]
    spec = write_tuned_spec(tuned, kept_knobs)
    if options.out is not None:
        _copy(spec.path, options.out)
    if options.json:
        values = {
            "path": str(spec.path),
            "is_whole": spec.is_whole,
            "why": spec.why,
            "overrides": [hidden_setting(override) for override in spec.overrides],
        }
        print_json({**result, "run_dir": str(run_dir), "spec": values})
    else:
        lines = _spec_lines(spec, options.out, has_changes=bool(kept_knobs))
        print("\n".join([*lines, *_more_lines(run_dir, result)]))


def _is_final(tuned: TuneRun) -> bool:
    """Check whether the result is final: after a resume the earlier one exists for a while."""
    from slurm_jobs.run.observe import status_of

    if not tuned.result_path.exists():
        return False
    return status_of(tuned.paths.run_dir).stage(tuned.stage).status == "completed"


_TO_TELL_MORE = "to detect smaller gains, tune again with a larger --budget: trials are longer then"


def _more_lines(run_dir: Path, result: Mapping[str, Any]) -> list[str]:
    """Return how to continue the run if its budget excluded a change."""
    from slurm_jobs.tuning.trial_model import budget_settings

    minutes = result.get("more_budget_min")  # results of earlier versions do not have it
    if minutes is None:
        failed = (result.get("closing") or {}).get("failure")
        return [_TO_TELL_MORE] if result.get("is_taken_back") and not failed else []
    sets = [w for s in budget_settings(result["stage"], minutes) for w in ("--set", s)]
    return [f"next: {command_text('resume', shown_path(run_dir), *sets)}"]


def _copy(spec: Path, out: Path) -> None:
    """Copy the new spec to --out.

    Raises:
        InputError: a file is there that was not when the tuning began.
    """
    from slurm_jobs.base.errors import InputError
    from slurm_jobs.base.files import create_once
    from slurm_jobs.base.regular_files import read_bytes

    if not create_once(out, read_bytes(spec)):
        message = (
            f"--out {out}: this file was made while the tuning ran, and is left as it is; the new "
            f"spec is {shown_path(spec)}: copy it where you want it"
        )
        raise InputError(message)


def _spec_lines(spec: TunedSpec, out: Path | None, *, has_changes: bool) -> list[str]:
    """Return the path of the new spec, and what to know about it."""
    path = shown_path(out if out is not None else spec.path)
    same = "" if has_changes else " (the same as the old one: nothing is changed)"
    lines = [f"new spec: {path}{same}"]
    if out is None and has_changes and not spec.is_whole:
        lines.append(
            "its paths are relative to the folder of the old one; --out FILE puts it there"
        )
    if spec.is_whole:
        lines.append(f"it is whole, with everything filled in and no comments: {spec.why}")
    sets = [word for override in spec.overrides for word in ("--set", hidden_setting(override))]
    if sets:
        lines.append("the new spec does not have what was set on the command line; give it again:")
        lines.append(f"  {shlex.join(sets)}")
    if out is not None and has_changes:
        lines.append(f"next: {command_text('submit', path, *sets)}")
        lines.append("then, next to a run of the old one: slurm-jobs compare OLD_RUN NEW_RUN")
    return lines
