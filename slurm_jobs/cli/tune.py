"""`slurm-jobs tune SPEC`: try what the report's findings name, and keep what is surely faster."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import (
    add_json,
    add_overrides,
    check_new,
    command_text,
    given_run,
    path_of,
    path_text,
    positive,
    print_json,
    shown_path,
)
from slurm_jobs.cli.watch import watch
from slurm_jobs.common.hidden import hidden_setting

if TYPE_CHECKING:
    from slurm_jobs.operations.tune import TuneRun
    from slurm_jobs.operations.tuned_spec import TunedSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
        "--limit", metavar="N", type=positive, help="as of `submit`: only the first N samples"
    )
    parser.add_argument(
        "--data",
        metavar="RUN",
        type=path_text,
        help="a finished run whose data set is used, instead of making one",
    )
    parser.add_argument(
        "--out", metavar="FILE", type=path_of, help="copy the new spec to FILE, a new one"
    )
    add_json(parser)


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


def run(options: argparse.Namespace) -> int:
    """Submit, wait, and print the result; exit code 1 if the run failed."""
    if options.out is not None:
        check_new("--out", options.out, Path(options.target))
    run_dir = _given_run(options)
    if run_dir is None:
        run_dir = _submitted(options)
    from slurm_jobs.operations.tune import read_tune_run

    tuned = read_tune_run(run_dir)
    if not _is_final(tuned):
        code = _wait(run_dir, as_json=options.json, out=options.out)
        if code != 0 or not tuned.result_path.exists():
            return code or 1
    return _tell(options, run_dir)


def _is_final(tuned: TuneRun) -> bool:
    """Check whether the result is final: after a resume the earlier one exists for a while."""
    from slurm_jobs.run.observe import status_of

    if not tuned.result_path.exists():
        return False
    return status_of(tuned.paths.run_dir).stage(tuned.stage).status == "completed"


def _given_run(options: argparse.Namespace) -> Path | None:
    """Return the run that was given; None for a spec."""
    of_spec = {
        "--stage": options.stage,
        "--budget": options.budget,
        "--set": options.overrides,
        "--limit": options.limit,
        "--data": options.data,
    }
    return given_run(options.target, of_spec, "tune")


def _submitted(options: argparse.Namespace) -> Path:
    from slurm_jobs.cli.submit import print_job, print_notes
    from slurm_jobs.operations.load import load
    from slurm_jobs.operations.submit import submit
    from slurm_jobs.operations.tune import Wanted, tuning_spec
    from slurm_jobs.run.find import find_run

    loaded = load(
        Path(options.target), overrides=options.overrides, limit=options.limit, to_submit=True
    )
    wanted = Wanted(
        stage=options.stage,
        budget_min=options.budget or 30.0,
        data_run=None if options.data is None else find_run(options.data),
    )
    quiet = options.json
    submission = submit(
        tuning_spec(loaded, wanted), on_job=(lambda _job: None) if quiet else print_job
    )
    run_dir = submission.paths.run_dir
    if not quiet:
        print_notes(submission)
        print(f"run folder: {shown_path(run_dir)}\n", flush=True)
    return run_dir


def _wait(run_dir: Path, *, as_json: bool, out: Path | None) -> int:
    """Wait for the end of the run; return the exit code of `status`."""
    from slurm_jobs.cli.problems import problem_lines
    from slurm_jobs.cli.status import status_values

    status, code = watch(run_dir, quiet=as_json, tells_failures=False)
    if status is None:
        words = [shown_path(run_dir), *([] if out is None else ["--out", str(out)])]
        print(f"its result, once it is over: {command_text('tune', *words)}", file=sys.stderr)
    elif status.status != "completed" and as_json:
        print_json(status_values(run_dir, status, time.time()))
    elif status.status != "completed":
        for line in problem_lines(run_dir, status, with_logs=True):
            print(line, file=sys.stderr)
    return code


def _tell(options: argparse.Namespace, run_dir: Path) -> int:
    """Print the result, and write the new spec if a change was kept."""
    from slurm_jobs.common.files import read_json
    from slurm_jobs.operations.tune import read_tune_run
    from slurm_jobs.operations.tuned_spec import write_tuned_spec

    tuned = read_tune_run(run_dir)
    result = read_json(tuned.result_path)
    if not options.json:
        from slurm_jobs.cli.output import console
        from slurm_jobs.tuning.terminal import render

        console().print(render(result))
        print(flush=True)
    kept = () if result.get("is_taken_back") else result["kept"]
    spec = write_tuned_spec(tuned, kept)
    if options.out is not None:
        _copy(spec.path, options.out)
    if options.json:
        print_json({**result, "run_dir": str(run_dir), "spec": _spec_values(spec)})
    else:
        for line in _spec_lines(spec, options.out, has_changes=bool(kept)):
            print(line)
        for line in _more_lines(run_dir, result):
            print(line)
    return 0


_TO_TELL_MORE = "to detect smaller gains, tune again with a larger --budget: trials are longer then"


def _more_lines(run_dir: Path, result: Mapping[str, Any]) -> list[str]:
    """Return how to continue the run if its budget excluded a change."""
    from slurm_jobs.tuning.model import budget_settings

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
    from slurm_jobs.common.errors import InputError
    from slurm_jobs.common.files import create_once

    if not create_once(out, spec.read_bytes()):
        message = (
            f"--out {out}: this file was made while the tuning ran, and is left as it is; the new "
            f"spec is {shown_path(spec)}: copy it where you want it"
        )
        raise InputError(message)


def _spec_values(spec: TunedSpec) -> dict[str, Any]:
    return {
        "path": str(spec.path),
        "is_whole": spec.is_whole,
        "why": spec.why,
        "overrides": [hidden_setting(override) for override in spec.overrides],
    }


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
