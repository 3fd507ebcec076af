"""Verb resume: run what is missing, and nothing else."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.base.index_ranges import parse_ranges, ranges_text
from slurm_jobs.base.units import number_of, seconds, slices_text
from slurm_jobs.cli.arguments import add_overrides, add_run, path_of
from slurm_jobs.cli.named_run import named_run
from slurm_jobs.cli.specs.submit import job_printer, job_values
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.shown_paths import command_text, short_note, shown_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_jobs.commands.resume import Resumption


_STARTS = {
    "requested": "`{}` begins at step 0, as requested; its earlier checkpoints are kept next to "
    "the new ones",
    "changed": "`{}` begins at step 0, because what it learns has changed; its earlier "
    "checkpoints are kept next to the new ones",
    "removed": "`{}` trains again from step 0: it was complete, and its checkpoints were removed "
    "since (`checkpoint.keep_after_end`, or `slurm-jobs clean`)",
    "continues": "`{}` continues from its newest checkpoint: the change does not affect what it "
    "learns",
    "depends": "`{}` continues from its newest checkpoint, unless what it learns or its data "
    "differ: then it begins at step 0, and its earlier checkpoints are kept next to the new ones",
}
"""Message on a training that has checkpoints, by where it begins."""
_OURS_RENEWED = (
    "this run's copy of slurm-jobs is of another version, which cannot read new jobs; they run the "
    "current slurm-jobs, with your code as the run has it"
)
_SPEC_CHANGED = (
    "the spec's file differs from what this run was given, which is used; --update-spec takes the "
    "file as it is now"
)
_CODE_CHANGED = (
    "your code differs from the snapshot of this run, which is used; --update-code takes your code "
    "as it is now"
)


def add_resume_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    add_overrides(parser)
    parser.add_argument(
        "--update-code",
        action="store_true",
        help="use the code as it is now, not as it was at submit; slices that used a changed file, "
        "and what comes after them, run again",
    )
    parser.add_argument(
        "--keep-complete",
        action="store_true",
        help="keep complete slices although the code that they used has changed; only the others "
        "run with the new code",
    )
    parser.add_argument(
        "--update-spec",
        action="store_true",
        help="read the spec's file again; stages whose work it changes run again",
    )
    parser.add_argument(
        "--spec",
        metavar="FILE",
        type=path_of,
        help="like --update-spec, with this file in place of the one that the run was submitted "
        "from",
    )
    parser.add_argument(
        "--again",
        metavar="STAGE[:SLICES]",
        action="append",
        default=[],
        help="run this stage, or its slices 0-3,7, again though complete; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would run, and why")
    parser.add_argument(
        "--yes", action="store_true", help="do not ask before complete work is repeated"
    )


def run_resume(options: argparse.Namespace) -> int:
    """Resume, and report what that does."""
    from slurm_jobs.commands.resume import ResumeRequest, resume
    from slurm_jobs.commands.run_search.spec_origin import SPEC_SUFFIXES

    run_dir = named_run(options.run)
    named = Path(options.run or "")
    given = named if options.update_spec and named.suffix in SPEC_SUFFIXES else None
    request = ResumeRequest(
        spec_file=options.spec or given,
        overrides=options.overrides,
        update_code=options.update_code,
        keep_complete=options.keep_complete,
        update_spec=options.update_spec or options.spec is not None,
        again=options.again,
        dry_run=options.dry_run,
    )

    def on_prepared(resumption: Resumption) -> None:
        if not options.json:
            _print_prepared(resumption)
        if not (options.json or options.yes) and sys.stdin.isatty():
            _ask_to_repeat(resumption)

    try:
        resumption = resume(run_dir, request, on_prepared=on_prepared, on_job=job_printer(options))
    except _DeclinedError:
        print("nothing was cancelled or submitted")
        return 0
    if options.json:
        print_json(resumption_values(resumption))
    elif options.dry_run:
        _print_prepared(resumption, cancelled="would be cancelled")
        print("nothing was cancelled or submitted: this was a dry run")
    else:
        print(f"next: {command_text('status', shown_path(run_dir))}")
    return 0


def _print_prepared(resumption: Resumption, *, cancelled: str = "are cancelled") -> None:
    """Print what runs again and why, and what must be cancelled before."""
    preparation = resumption.preparation
    for problem in preparation.problems:
        print(f"could not be queried: {problem}")
    for stage, job_id in preparation.adopted.items():
        print(f"found the job of {stage} again, whose id was not recorded: {job_id}")
    for stage, damaged in preparation.damaged.items():
        if damaged:
            which = slices_text(sorted(damaged))
            print(f"the output of {stage}, {which}, is missing or cut short")
    if preparation.cancel:
        ids = " ".join(job.job_id for job in preparation.cancel)
        print(f"these jobs block the resume and {cancelled}: {ids}")
    _print_work(resumption)
    for change in resumption.adjustments:
        print(f"requests changed: {change}")
    if not resumption.plan.jobs:
        is_going = any(preparation.done.active.values())
        print("all that is missing is queued or running" if is_going else "nothing is missing")
    for note in notes_of(resumption):
        print(f"note: {note}")


def _print_work(resumption: Resumption) -> None:
    """Print which slices run again, what complete work that repeats, and what stays."""
    again: dict[str, set[int]] = {}
    for job in resumption.plan.jobs:
        again.setdefault(job.stage, set()).update(job.slices)
        is_array = resumption.plan.stage(job.stage).is_array
        print(f"runs again: {job.stage}{_slices_text(job.slices, is_array=is_array)} ({job.why})")
    for stage, repeated in resumption.repeated.items():
        slices = number_of("slice", repeated.num_slices)
        time = seconds(3600 * repeated.hours)
        gpus = f" ({seconds(3600 * repeated.gpu_hours)} of GPUs)" if repeated.gpu_hours else ""
        print(f"repeats complete work: {stage}, {slices} that took {time}{gpus}")
    for stage in resumption.kept.forbidden:
        print(f"{stage} keeps nothing that changed code made: it has `mixed_code: forbid`")
    for stage, by_token in resumption.kept.other_code.items():
        kept = {index for ranges in by_token.values() for index in parse_ranges(ranges)}
        if stays := sorted(kept - again.get(stage, set())):
            text = _slices_text(stays, is_array=resumption.plan.stage(stage).is_array)
            print(f"{stage}{text}: kept, although earlier code made it")


def _slices_text(slices: Sequence[int], *, is_array: bool) -> str:
    word = "slice" if len(slices) == 1 else "slices"
    return f", {word} {ranges_text(slices)}" if is_array else ""


class _DeclinedError(Exception):
    """The user does not want complete work to be repeated."""


def _ask_to_repeat(resumption: Resumption) -> None:
    """Ask whether to repeat complete work that the user has not named with `--again`.

    The end of the input (Ctrl-D) is a no.

    Raises:
        _DeclinedError: the answer is no.
    """
    unasked = [stage for stage in resumption.repeated if stage not in resumption.asked_again]
    hours = sum(resumption.repeated[stage].hours for stage in unasked)
    if hours < _WORTH_A_QUESTION_H:
        return
    if resumption.kept.outdated:
        print("--keep-complete would keep the complete slices, though earlier code made them")
    question = f"repeat {seconds(3600 * hours)} of complete work? [y/N] "
    print(question, end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise _DeclinedError


_WORTH_A_QUESTION_H = 1 / 60
"""Hours of repeated work from which a terminal is asked."""


def print_stages(resumption: Resumption) -> None:
    """Print what happens to each stage, and why."""
    from slurm_jobs.cli.terminal.console import console, table_of

    plan, done = resumption.plan, resumption.preparation.done
    rows = []
    for stage in plan.stages:
        jobs = [job for job in plan.jobs if job.stage == stage.name]
        again = {index for job in jobs for index in job.slices}
        still_done = done.completed.get(stage.name, frozenset()) - again
        for slices, what, why in (
            (again, "runs", jobs[0].why if jobs else ""),
            (done.active.get(stage.name, frozenset()), "goes on", ""),
            (still_done, "stays", "complete"),
        ):
            if slices:
                numbers = ranges_text(sorted(slices)) if stage.is_array else "-"
                rows.append([stage.name, numbers, what, why])
    console().print(table_of(("stage", "slices", "what", "because"), rows))
    for note in notes_of(resumption):
        print(f"note: {note}")


def notes_of(resumption: Resumption) -> list[str]:
    """Return further notes on a resumption."""
    from slurm_jobs.run.submission import dependency_notes

    has_new_jobs = resumption.ours_renewed and bool(resumption.plan.jobs)
    return [
        *map(short_note, resumption.spec_notes),
        *([] if resumption.private_note is None else [resumption.private_note]),
        *([] if resumption.cleaned_note is None else [resumption.cleaned_note]),
        *resumption.left_out,
        *resumption.unused_settings,
        *dependency_notes(resumption.plan, resumption.preparation.connections),
        *resumption.shell_notes,
        *[_STARTS[start].format(name) for name, start in resumption.trainings.items()],
        *([_OURS_RENEWED] if has_new_jobs else []),
        *([_SPEC_CHANGED] if resumption.spec_changed else []),
        *([_CODE_CHANGED] if resumption.code_changed else []),
    ]


def resumption_values(resumption: Resumption) -> dict[str, Any]:
    """Return a resumption as JSON values; without job ids after a dry run."""
    preparation, jobs = resumption.preparation, resumption.plan.jobs
    submitted = [*map(job_values, resumption.jobs)] or [{"stage": job.stage} for job in jobs]
    return {
        "run_id": resumption.paths.run_dir.name,
        "run_dir": str(resumption.paths.run_dir),
        "jobs": [
            {**values, "slices": ranges_text(job.slices), "why": job.why}
            for job, values in zip(jobs, submitted, strict=True)
        ],
        "cancelled": [job.job_id for job in preparation.cancel],
        "adopted": dict(preparation.adopted),
        "problems": list(preparation.problems),
        "code_changed": resumption.code_changed,
        "spec_changed": resumption.spec_changed,
        "repeated": {
            stage: {
                "num_slices": repeated.num_slices,
                "hours": repeated.hours,
                "gpu_hours": repeated.gpu_hours,
            }
            for stage, repeated in resumption.repeated.items()
        },
        "other_code": {
            stage: list(by_token.values()) for stage, by_token in resumption.kept.other_code.items()
        },
        "adjusted": list(resumption.adjustments),
        "notes": notes_of(resumption),
    }
