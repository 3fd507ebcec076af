"""Built-in stage `report`, and the same work for the command `slurm-jobs report`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import DamagedFileError, InputError
from slurm_jobs.base.files import (
    atomic_writer,
    make_private_dir,
    write_json_atomic,
    write_text_atomic,
)
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.stages import ReportConfig
from slurm_jobs.formats.records import TaskContext
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.report.inputs.read_inputs import read_inputs
from slurm_jobs.report.numbers.build_report import build_report
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.step_export import PUBLIC_FILE_MODE
from slurm_jobs.report.values.report_model import RunReport, report_to_json
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.protocol import Answer


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerAnswers:
    """Scheduler's answers for a report."""

    accounting: tuple[TaskAccounting, ...]
    answer: Answer | None
    """Answer that `status` uses; None if the run has no readable plan."""
    problems: tuple[str, ...]
    """Sources that could not be queried."""


def ask(paths: RunPaths) -> SchedulerAnswers:
    """Query the run's scheduler for a report."""
    from slurm_jobs.run.observe import accounting_of, answer_of

    accounted = accounting_of(paths.run_dir)
    try:
        answer = answer_of(paths.run_dir)
    except (InputError, DamagedFileError):  # reports on broken runs are needed most
        answer = None
    problems = (*accounted.problems, *(answer.problems if answer is not None else ()))
    return SchedulerAnswers(
        accounting=accounted.starts,
        answer=answer,
        problems=tuple(dict.fromkeys(map(str, problems))),
    )


def make_report(
    paths: RunPaths,
    accounting: Sequence[TaskAccounting] = (),
    config: ReportConfig | None = None,
    *,
    answer: Answer | None = None,
    num_epochs: float | None = None,
) -> RunReport:
    """Return the report of a run; nothing is written.

    Args:
        paths: paths of the run.
        accounting: what the scheduler knows of the run's jobs; if empty, the report says that
            there is none.
        config: options of the report.
        answer: what the scheduler says of the run's jobs now; if left out, the accounting is
            all there is.
        num_epochs: epochs for a projection.

    Raises:
        FileNotFoundError: `paths` is not a run.
    """
    inputs = read_inputs(paths, accounting, answer)
    return build_report(inputs, config or ReportConfig(), num_epochs=num_epochs)


def keep_report(report: RunReport, paths: RunPaths) -> None:
    """Write page and JSON into the run's report folder.

    Not into another user's run, whatever this one may write there: what only its owner may read
    is missing from this report, which they could neither read nor, without one before it, replace.

    Raises:
        OSError: the folder cannot be written, is a link (NotADirectoryError), or is another user's
            run's (PermissionError).
    """
    from slurm_jobs.run.home import anothers_run

    owner = anothers_run(paths)
    if owner:
        message = (
            f"the run is {owner}, and you are uid {os.getuid()}; what only they may read may be "
            "missing above"
        )
        raise PermissionError(message)
    if paths.report_dir.is_symlink():  # perhaps in a run that was sent to you
        message = f"{paths.report_dir} is a link, which may lead out of the run: remove it"
        raise NotADirectoryError(message)
    make_private_dir(paths.report_dir)
    write_json_atomic(paths.report_json, report_to_json(report))
    write_text_atomic(paths.report_html, render_html(report))


def share_report(report: RunReport, path: Path) -> None:
    """Write the page of a report to a file that everybody may read, whatever the umask.

    Raises:
        OSError: it cannot be written.
    """
    page = render_html(report).encode(errors="backslashreplace")
    with atomic_writer(path, mode=PUBLIC_FILE_MODE) as stream:
        stream.write(page)


def build_and_write(
    paths: RunPaths,
    accounting: Sequence[TaskAccounting] = (),
    config: ReportConfig | None = None,
    *,
    answer: Answer | None = None,
) -> RunReport:
    """Make the report and write it; see `make_report` and `keep_report`."""
    report = make_report(paths, accounting, config, answer=answer)
    keep_report(report, paths)
    return report


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Run the stage: return headline numbers, and write the page."""
    paths = RunPaths(context.run_dir)
    answers = ask(paths)
    for problem in answers.problems:
        print(f"the scheduler could not be queried: {problem}", flush=True)
    report = build_and_write(
        paths, answers.accounting, build_config(ReportConfig, config), answer=answers.answer
    )
    return headline(report, paths)


def headline(report: RunReport, paths: RunPaths) -> dict[str, Any]:
    """Return the few numbers that a list of runs shows."""
    main = max(report.training, key=lambda t: t.num_steps, default=None)
    return {
        "html": str(paths.report_html),
        "status": report.header.status,
        "verdict": report.verdict,
        "wall_s": report.header.last_unix_s - report.header.created_unix_s,
        "tokens_per_s": main.tokens_per_s.value if main else None,
        "data_wait_share": main.phase("data_wait").share if main and main.phases else None,
        "num_findings": len(report.findings),
    }
