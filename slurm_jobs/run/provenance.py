"""Provenance of a submit or resume: code, command line, packages, host.

Records have the numbers of `plans/`. They contain only the named facts, never the environment, and
the rules of `base/redact.py` remove values that look like secrets. The diff of uncommitted work
may still hold secrets: it stays in the run folder, which is private, and no report shows it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from slurm_jobs import __version__
from slurm_jobs.base.files import make_private_dir, write_bytes_atomic, write_json_atomic
from slurm_jobs.base.machine import host_facts, python_facts
from slurm_jobs.base.processes.programs import CommandAnswer, ask_together
from slurm_jobs.base.redact import hidden_setting, hidden_values
from slurm_jobs.run.git_facts import (
    content_commands,
    foreign_files,
    git_environment,
    read_answers,
    settings_commands,
    without_filters,
)
from slurm_jobs.run_folder.paths import RunPaths

ASK_LIMIT_S = 5.0
"""Time limit for git and Slurm together. If a repository on a slow file system takes longer, that
is recorded instead."""
MAX_ANSWER_BYTES = 8 * 2**20
"""Limit for git's output, mainly the diff of uncommitted work; longer output is cut."""
SLURM_COMMANDS = {"slurm": ("sbatch", "--version")}


def record_provenance(
    paths: RunPaths,
    spec_dir: Path,
    number: int,
    overrides: Sequence[str],
    *,
    scheduler: str,
    snapshot: str,
) -> None:
    """Record the provenance of the submission of plan `number`.

    Args:
        paths: of the run.
        spec_dir: Folder of the run's spec, which git describes.
        number: of the plan, counted from 1.
        overrides: of the spec, `KEY=VALUE` each; a notebook's command line does not hold them.
        scheduler: Its name; for `slurm` the version is recorded.
        snapshot: Name of the copy of the code that the new jobs run.

    Raises:
        OSError: the run folder cannot be written. Other failures are recorded, not raised.
    """
    end_s = time.monotonic() + ASK_LIMIT_S
    env = git_environment(os.environ)
    answers = ask_together(
        settings_commands(spec_dir) | (SLURM_COMMANDS if scheduler == "slurm" else {}),
        limit_s=ASK_LIMIT_S,
        max_bytes=MAX_ANSWER_BYTES,
        env=env,
    )
    settings = answers["settings"]
    names = os.fsdecode(settings.output).split("\0")
    problem = settings.problem or foreign_files(spec_dir, answers["folders"], names)
    if problem or settings.is_cut:  # if it is cut, which programs git might start is not known
        unread = CommandAnswer(problem=problem or "git config: too many settings")
        answers = {**answers, "status": unread, "diff": unread}
    else:
        content = ask_together(
            content_commands(spec_dir),
            limit_s=max(0.1, end_s - time.monotonic()),
            max_bytes=MAX_ANSWER_BYTES,
            env=without_filters(env, names),
        )
        answers = {**answers, **content}
    facts, diff = read_answers(spec_dir, answers)
    values = {
        "number": number,
        "recorded_unix_s": time.time(),
        "slurm_jobs_version": __version__,
        "command": hidden_values([hidden_setting(word) for word in sys.argv]),
        "overrides": [hidden_setting(override) for override in overrides],
        "working_dir": _working_dir(),
        "code": snapshot,
        "git": asdict(facts),
        "host": host_facts(),
        "python": python_facts(sys.path),
        "slurm": slurm_facts(answers["slurm"]) if "slurm" in answers else None,
    }
    make_private_dir(paths.provenance_dir)
    if diff:
        write_bytes_atomic(paths.uncommitted_diff(number), diff)
    write_json_atomic(paths.provenance(number), values)


def _working_dir() -> str | None:
    try:
        return str(Path.cwd())
    except OSError:  # the run was removed in the meantime
        return None


def slurm_facts(answer: CommandAnswer) -> Mapping[str, str]:
    """Return Slurm's version here, or the reason why it is unknown."""
    return {"version": answer.text.strip(), "problem": answer.problem}
