"""What to ask git about the folder that a spec lies in, and what its answers amount to. PURE.

git is only asked: it takes no lock, runs no hook and asks nobody for a password. Every way to fail
(no git, no repository, one of another owner's) is an answer, not an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm_jobs.common.commands import CommandAnswer
from slurm_jobs.common.hidden import without_url_users

MAX_NAMES = 500
"""Of changed and of untracked files each; how many there were is noted too."""
_MISLEADING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_EXTERNAL_DIFF", "GIT_TRACE")
"""Variables that would lead git to another repository than the spec's, or run something."""
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat", "LC_ALL": "C"}
_SETTINGS = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false")


@dataclass(frozen=True, kw_only=True, slots=True)
class GitFacts:
    """The repository of a spec's folder as it stood; None and empty where git did not say."""

    folder: str
    commit: str | None = None
    """None in a repository without a commit, too."""
    branch: str | None = None
    """None if HEAD is detached."""
    remotes: Mapping[str, str] = field(default_factory=dict)
    """URL by name, without user and password."""
    is_dirty: bool | None = None
    """Whether tracked files differ from the commit; None if that is not known."""
    num_changed: int = 0
    changed: tuple[str, ...] = ()
    """Tracked files that differ, relative to the top of the repository; the first `MAX_NAMES`."""
    num_untracked: int = 0
    untracked: tuple[str, ...] = ()
    """Files, and folders with a `/` at the end, that git neither tracks nor ignores."""
    diff_bytes: int = 0
    """Of the diff that lies beside these facts."""
    diff_is_cut: bool = False
    """It was too long, or git was ended before it was whole."""
    problems: tuple[str, ...] = ()
    """What could not be found out, and why."""


def git_commands(folder: Path) -> dict[str, Sequence[str]]:
    """The questions, by what they are called here."""
    git = ["git", "-C", str(folder), *_SETTINGS]
    own = ["-c", "diff.autoRefreshIndex=false"]  # or it writes the index, optional locks or not
    plain = ["--no-color", "--no-ext-diff", "--no-textconv"]
    return {
        "status": [*git, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal"],
        "diff": [*git, *own, "diff", *plain, "--binary", "HEAD", "--"],
        "remotes": [*git, "config", "-z", "--get-regexp", r"^remote\..*\.url$"],
    }


def git_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment to ask in: nothing that leads git elsewhere or makes it wait for somebody."""
    return {key: value for key, value in variables.items() if key not in _MISLEADING} | _QUIET


def read_answers(folder: Path, answers: Mapping[str, CommandAnswer]) -> tuple[GitFacts, bytes]:
    """What git's answers to `git_commands` amount to."""
    status, diff = answers["status"], answers["diff"]
    header, changed, untracked = _read_status(status.text)
    commit = header.get("branch.oid")
    has_commit = commit is not None and commit != "(initial)"
    branch = header.get("branch.head")
    problems = [status.problem] if status.problem else []
    if status.is_cut:
        problems.append("git status: the list of files is cut")
    if diff.problem and has_commit:  # else it is the same problem again, or there is nothing to see
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
    """Header by key, changed and untracked names, from `git status --porcelain=v2 -z`.

    The form is that of git-status(1), "Porcelain Format Version 2".
    """
    header: dict[str, str] = {}
    changed: list[str] = []
    untracked: list[str] = []
    entries = iter(text.split("\0")[:-1])  # what follows the last end is no whole entry
    for entry in entries:
        kind, _, rest = entry.partition(" ")
        if kind == "#":
            key, _, header[key] = rest.partition(" ")
        elif kind == "?":
            untracked.append(rest)
        elif kind in _FIELDS_BEFORE_PATH:
            changed.append(rest.split(" ", _FIELDS_BEFORE_PATH[kind])[-1])
            if kind == "2":
                next(entries, None)  # where a renamed file came from
    return header, changed, untracked


_FIELDS_BEFORE_PATH = {"1": 7, "2": 8, "u": 9}


def _read_remotes(text: str) -> dict[str, str]:
    """URL by name, from `remote.NAME.url` and the URL, a newline between them."""
    pairs = (entry.partition("\n") for entry in text.split("\0")[:-1])
    return {
        key.removeprefix("remote.").removesuffix(".url"): without_url_users(url)
        for key, _, url in pairs
    }
