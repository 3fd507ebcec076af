"""`slurm-jobs tune SPEC`: try what the report's findings name, and keep what is surely faster."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slurm_jobs.cli.options import (
    add_overrides,
    check_new,
    command_text,
    path_of,
    path_text,
    positive,
    print_json,
    shown_path,
)
from slurm_jobs.cli.problems import problem_lines
from slurm_jobs.cli.run_view import status_values, watch
from slurm_jobs.cli.submit import job_printer, print_submission
from slurm_jobs.shared import units
from slurm_jobs.shared.redact import hidden_setting
from slurm_jobs.tuning.headline import (
    LOADING_TAKES_CORES,
    Values,
    came,
    disturbed,
    headline,
    is_unseen_price,
    value_text,
    why_nothing_tried,
)

if TYPE_CHECKING:
    from slurm_jobs.commands.tune import TunedSpec, TuneRun


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
    from slurm_jobs.commands.find_run import find_run, given_run
    from slurm_jobs.commands.read_spec import load
    from slurm_jobs.commands.submit import submit
    from slurm_jobs.commands.tune import Wanted, read_tune_run, tuning_spec

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
        wanted = Wanted(
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
    from slurm_jobs.cli.options import console
    from slurm_jobs.commands.tune import write_tuned_spec
    from slurm_jobs.shared.files import read_json

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
    from slurm_jobs.shared.errors import InputError
    from slurm_jobs.shared.files import create_once
    from slurm_jobs.shared.regular_files import read_bytes

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


# The result of a tuning on one screen of the terminal, 80 columns wide. rich honours NO_COLOR.


_WIDTH = 78
_TAKEN_BACK = "taken back"
_MORE_THAN_PREDICTED = (
    "  Predicted is for the time that the finding counts; a change may save other time, too."
)
_STYLES = {
    "kept": "bold green",
    _TAKEN_BACK: "yellow",
    "rejected": "",
    "failed": "red",
    "undecided": "yellow",
}


def render(result: Values) -> RenderableType:
    """Render the content of `tuning.json`."""
    parts: list[RenderableType] = [Text(headline(result), style="bold")]
    trials_text = (
        f"{result['num_trials']} trials of {result['num_steps']} steps on "
        f"{units.number_of('rank', result['num_ranks'])}, {units.seconds(result['spent_s'])} of a "
        f"budget of {units.seconds(result['budget_s'])}"
    )
    parts.append(Text(trials_text, style="dim"))
    if note := disturbed(result):
        parts.append(Text(f"note: {note}", style="yellow"))
    data = result["data"]
    predicted = data["predicted"]
    if data["ratio"] is None:
        measured = data["failure"] or "not known: too few trials"
    else:
        measured = f"{came(data)}; {data['word']}"
    costs = _grid()
    no_wait = "no finding: steps wait for data for less than 5 % of their time"
    costs.add_row("predicted by the report", Text(predicted or no_wait))
    costs.add_row("measured, nothing to read", Text(measured))
    parts += [Text("\nWhat data costs", style="bold"), costs]
    if is_unseen_price(data):
        parts.append(Text(f"  {LOADING_TAKES_CORES}", style="yellow"))
    parts += [Text("\nTried, strongest finding first", style="bold"), *_tried(result)]
    not_tried = _grid()
    for change in result["not_tried"]:
        not_tried.add_row(Text(change["name"]), Text(change["why"]))
    not_tried.add_row(
        Text(", ".join(result["not_measured"])),
        Text("trials save and evaluate nothing: the report of a whole run shows their cost"),
    )
    parts += [Text("\nNot tried", style="bold"), not_tried]
    return Group(*parts, Text("\nBefore and after", style="bold"), *_before_and_after(result))


def _tried(result: Values) -> list[RenderableType]:
    if not result["tried"]:
        return [Text(f"  nothing: {why_nothing_tried(result)}")]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("change, and its finding", width=37, overflow="fold")
    for name, width in (("predicted", 9), ("measured", 17), ("", 11)):
        table.add_column(name, width=width, overflow="fold")
    lines = []
    exceeds_prediction = False
    for change in result["tried"]:
        outcome, ratio, times = change["outcome"], change["ratio"], change["predicted_times"]
        if outcome == "kept" and result.get("is_taken_back"):  # before and after show no gain
            outcome = _TAKEN_BACK
        words = {"undecided": "not ended", "rejected": str(change["why"])}.get(outcome, outcome)
        interval = "-"
        if ratio is not None:
            interval = f"{ratio:.3g} x\n({change['low']:.3g} to {change['high']:.3g})"
            exceeds_prediction |= times is not None and ratio > times
        table.add_row(
            Text(f"{change['name']}\n  {change['rule']}"),
            Text("?" if times is None else f"{times:.3g} x"),
            Text(interval),
            Text(words, style=_STYLES[outcome]),
        )
        if outcome in {"failed", "undecided"}:
            line = f"  {change['name']}: {words}: {change['why']}"
            lines.append(Text(line, style=_STYLES[outcome]))
    lines.append(Text("  Only what is surely faster is kept.", style="dim"))
    if exceeds_prediction:
        lines.append(Text(_MORE_THAN_PREDICTED, style="dim"))
    return [table, *lines]


def _before_and_after(result: Values) -> list[RenderableType]:
    closing = result["closing"]
    if closing is None or closing["before"] is None or closing["after"] is None:
        nothing_kept = "nothing is kept, so there is no after"
        if result["kept"]:
            failure = (closing or {}).get("failure")
            nothing_kept = f"after was not measured: {failure or 'no budget was left'}"
        return [Text(f"  {nothing_kept}"), _columns({"before": result["baseline"]})]
    parts: list[RenderableType] = [
        _columns({"before": closing["before"], "after": closing["after"]})
    ]
    if closing["ratio"] is not None:
        parts.append(Text(f"  after, against before: {came(closing)}; {closing['word']}"))
    back = "  (taken back: the new spec does not have it)" if result.get("is_taken_back") else ""
    changes = _grid()
    for change in result["kept"]:
        changes.add_row(
            Text(change["key"]),
            Text(f"{value_text(change['was'])} -> {value_text(change['value'])}{back}"),
        )
    return [*parts, changes]


def _columns(arms: Mapping[str, Values]) -> RenderableType:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("", no_wrap=True)
    for name in arms:
        table.add_column(name, justify="right", no_wrap=True)
    for label, key, text in (
        ("tokens/s", "tokens_per_s", units.significant),
        ("samples/s", "samples_per_s", units.significant),
        ("mean step", "step_s", units.seconds),
        ("waits for data", "data_wait_share", units.percent),
        ("memory at most", "memory_peak_bytes", units.num_bytes),
        ("trials", "num_repeats", str),
    ):
        table.add_row(f" {label}", *(text(arm[key]) for arm in arms.values()))
    return table


def _grid() -> Table:
    table = Table.grid(padding=(0, 2, 0, 2), expand=False)
    table.width = _WIDTH
    table.add_column(ratio=2, overflow="fold")
    table.add_column(ratio=3, overflow="fold")
    return table
