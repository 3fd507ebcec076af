"""Provenance of a submit or resume: code, command line, packages, host.

Records have the numbers of `plans/`. They contain only the named facts, never the environment, and
the rules of `shared/redact.py` remove values that look like secrets. The diff of uncommitted work
may still hold secrets: it stays in the run folder, which is private, and no report shows it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from slurm_jobs import __version__
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.shared.files import make_private_dir, write_bytes_atomic, write_json_atomic
from slurm_jobs.shared.machine import host_facts, python_facts
from slurm_jobs.shared.process import CommandAnswer, ask_together
from slurm_jobs.shared.redact import hidden_setting, hidden_values, without_url_users

# Facts from git about the folder of a spec.
#
# The git commands only read: they take no lock, run no hook and ask for no password. Every failure
# (no git, no repository, another owner's repository) is a result, not an error.


MAX_NAMES = 500
"""Limit for listed changed and untracked files each; their total number is recorded too."""
_MISLEADING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_EXTERNAL_DIFF", "GIT_TRACE")
"""Variables that would lead git to another repository than the spec's, or run something."""
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat", "LC_ALL": "C"}
_SETTINGS = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false")


@dataclass(frozen=True, kw_only=True, slots=True)
class GitFacts:
    """State of the repository of a spec's folder; None and empty where git gave no answer."""

    folder: str
    commit: str | None = None
    """Commit of HEAD; None also in a repository without a commit."""
    branch: str | None = None
    """Branch of HEAD; None if HEAD is detached."""
    remotes: Mapping[str, str] = field(default_factory=dict)
    """URL by name, without user and password."""
    is_dirty: bool | None = None
    """True if tracked files differ from the commit; None if unknown."""
    num_changed: int = 0
    changed: tuple[str, ...] = ()
    """Tracked files that differ, relative to the top of the repository; the first `MAX_NAMES`."""
    num_untracked: int = 0
    untracked: tuple[str, ...] = ()
    """Files, and folders with a `/` at the end, that git neither tracks nor ignores."""
    diff_bytes: int = 0
    """Size of the diff that is stored next to these facts."""
    diff_is_cut: bool = False
    """True if the diff was too long, or git was stopped before it was complete."""
    problems: tuple[str, ...] = ()
    """Facts that could not be determined, with the reason."""


def git_commands(folder: Path) -> dict[str, Sequence[str]]:
    """Return the git commands by their names here."""
    git = ["git", "-C", str(folder), *_SETTINGS]
    options = ["-c", "diff.autoRefreshIndex=false"]  # or it writes the index, optional locks or not
    plain = ["--no-color", "--no-ext-diff", "--no-textconv"]
    return {
        "status": [*git, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal"],
        "diff": [*git, *options, "diff", *plain, "--binary", "HEAD", "--"],
        "remotes": [*git, "config", "-z", "--get-regexp", r"^remote\..*\.url$"],
    }


def git_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which git neither uses another repository nor prompts."""
    return {key: value for key, value in variables.items() if key not in _MISLEADING} | _QUIET


def read_answers(folder: Path, answers: Mapping[str, CommandAnswer]) -> tuple[GitFacts, bytes]:
    """Build the facts from git's answers to `git_commands`."""
    status, diff = answers["status"], answers["diff"]
    header, changed, untracked = _read_status(status.text)
    commit = header.get("branch.oid")
    has_commit = commit is not None and commit != "(initial)"
    branch = header.get("branch.head")
    problems = [status.problem] if status.problem else []
    if status.is_cut:
        problems.append("git status: the list of files is cut")
    if diff.problem and has_commit:  # otherwise the same problem, or no answer
        problems.append(diff.problem)
    knows_files = bool(header) and not status.problem
    facts = GitFacts(
        folder=str(folder),
        commit=commit if has_commit else None,
        branch=branch if branch != "(detached)" else None,
        remotes=_read_remotes(answers["remotes"].text),
        is_dirty=bool(changed) if knows_files or changed else None,
        num_changed=len(changed),
        changed=tuple(changed[:MAX_NAMES]),
        num_untracked=len(untracked),
        untracked=tuple(untracked[:MAX_NAMES]),
        diff_bytes=len(diff.output),
        diff_is_cut=diff.is_cut or bool(diff.output and diff.problem),
        problems=tuple(without_url_users(problem) for problem in problems),
    )
    return facts, diff.output


def _read_status(text: str) -> tuple[dict[str, str], list[str], list[str]]:
    """Return headers by key, changed names and untracked names from `git status`.

    The format is that of `--porcelain=v2 -z`: git-status(1), "Porcelain Format Version 2".
    """
    header: dict[str, str] = {}
    changed: list[str] = []
    untracked: list[str] = []
    entries = iter(text.split("\0")[:-1])  # text after the last terminator is an incomplete entry
    for entry in entries:
        kind, _, rest = entry.partition(" ")
        if kind == "#":
            key, _, header[key] = rest.partition(" ")
        elif kind == "?":
            untracked.append(rest)
        elif kind in _FIELDS_BEFORE_PATH:
            changed.append(rest.split(" ", _FIELDS_BEFORE_PATH[kind])[-1])
            if kind == "2":
                next(entries, None)  # the former name of a renamed file
    return header, changed, untracked


_FIELDS_BEFORE_PATH = {"1": 7, "2": 8, "u": 9}


def _read_remotes(text: str) -> dict[str, str]:
    """Return URLs by name from `remote.NAME.url` and the URL, separated by a newline."""
    pairs = (entry.partition("\n") for entry in text.split("\0")[:-1])
    return {
        key.removeprefix("remote.").removesuffix(".url"): without_url_users(url)
        for key, _, url in pairs
    }


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
) -> None:
    """Record the provenance of the submission of plan `number`.

    Args:
        paths: of the run.
        spec_dir: Folder of the run's spec, which git describes.
        number: of the plan, counted from 1.
        overrides: of the spec, `KEY=VALUE` each; a notebook's command line does not hold them.
        scheduler: Its name; for `slurm` the version is recorded.

    Raises:
        OSError: the run folder cannot be written. Other failures are recorded, not raised.
    """
    answers = ask_together(
        git_commands(spec_dir) | (SLURM_COMMANDS if scheduler == "slurm" else {}),
        limit_s=ASK_LIMIT_S,
        max_bytes=MAX_ANSWER_BYTES,
        env=git_environment(os.environ),
    )
    facts, diff = read_answers(spec_dir, answers)
    values = {
        "number": number,
        "recorded_unix_s": time.time(),
        "slurm_jobs_version": __version__,
        "command": hidden_values([hidden_setting(word) for word in sys.argv]),
        "overrides": [hidden_setting(override) for override in overrides],
        "working_dir": _working_dir(),
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
