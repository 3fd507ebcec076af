"""Facts from git about the folder of a spec.

The git commands only read: they take no lock, ask for no password, and start no program that the
repository's settings name, such as a hook, a filter or a transport. They compare only files of the
folder that holds `.git`, because the author of a repository that you receive may have had git read
your private files. Every failure (no git, no repository, another owner's repository) is a result,
not an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from slurm_jobs.base.processes.programs import CommandAnswer
from slurm_jobs.base.redact import without_url_users
from slurm_jobs.base.regular_files import read_text

MAX_NAMES = 500
"""Limit for listed changed and untracked files each; their total number is recorded too."""
_MISLEADING = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"),
    *("GIT_EXTERNAL_DIFF", "GIT_TRACE"),
)
"""Variables that would lead git to another repository than the spec's, or run something."""
_QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
    # A partial clone would fetch what it lacks, with the program that it names for the transport.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}
_SETTINGS = (
    *("-c", "core.fsmonitor=false"),  # the name of a hook, or a daemon
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.quotePath=false"),
)


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


def settings_commands(folder: Path) -> dict[str, Sequence[str]]:
    """Return the commands, by name, that read git's settings and folders, and start no program."""
    git = ["git", "-C", str(folder), *_SETTINGS]
    return {
        "settings": [*git, "config", "-z", "--name-only", "--list"],
        "remotes": [*git, "config", "-z", "--get-regexp", r"^remote\..*\.url$"],
        "folders": [*git, "rev-parse", "--git-dir", "--show-toplevel"],
    }


def foreign_files(folder: Path, folders: CommandAnswer, settings: Iterable[str]) -> str | None:
    """Return why git might compare files of another folder or repository; None if it does not.

    The folder that git compares must be the one that holds `.git`. If git's own folder is outside
    of that, as of a submodule or of `git worktree`, it must name the folder in turn.

    Args:
        folder: of the spec.
        folders: Answer of git to the command of that name.
        settings: Names of all settings.
    """
    if folders.problem:
        return folders.problem
    lines = os.fsdecode(folders.output).split("\n")
    above = Path(os.path.realpath(folder))
    top = next((path for path in (above, *above.parents) if os.path.lexists(path / ".git")), None)
    if top is None or len(lines) != _LINES_OF_FOLDERS or _real(folder, lines[1]) != top:
        return "git: the work tree is not the folder that holds .git"
    git_dir = _real(folder, lines[0])
    try:
        dot_git = top / ".git"
        linked = _path_in(dot_git, "gitdir: ") if dot_git.is_file() else _real(top, ".git")
        if git_dir != linked or not _names(git_dir, top, settings):
            return "git: .git leads to another repository"
        if _has_foreign_references(git_dir):
            return "git: .git has links to another repository"
    except (OSError, ValueError) as error:
        return f"git: {error}"
    return None


_LINES_OF_FOLDERS = 3
"""Git's folder, the top folder, and nothing; more if a name has a line break."""


def _real(folder: Path, name: str) -> Path:
    return Path(os.path.realpath(folder / name))


def _path_in(file: Path, prefix: str = "") -> Path:
    """Return the path that one of git's files holds, relative to the file's folder."""
    text = read_text(file, errors="surrogateescape")
    return _real(file.parent, text.removeprefix(prefix).rstrip("\r\n"))


def _names(git_dir: Path, top: Path, settings: Iterable[str]) -> bool:
    """Check whether git's folder is in `top`, or names it as its work tree.

    A setting of a work tree names `top`, because git has given this as the top folder.
    """
    if not (git_dir / "commondir").exists():
        return git_dir.is_relative_to(top) or "core.worktree" in settings
    return (
        _path_in(git_dir / "gitdir") == top / ".git"
        and git_dir.parent == _common(git_dir) / "worktrees"
    )


def _common(git_dir: Path) -> Path:
    """Return the folder with what all work trees of a repository share."""
    shared = git_dir / "commondir"
    return _path_in(shared) if shared.exists() else git_dir


def _has_foreign_references(git_dir: Path) -> bool:
    """Check for links that give this repository the commits of another one."""
    common = _common(git_dir)
    paths = [common / name for name in ("packed-refs", "refs", "reftable")]
    for base in (git_dir / "refs", common / "refs", common / "reftable"):
        for root, folders, names in os.walk(base):
            paths += [Path(root, name) for name in (*folders, *names)]
    links = [path for path in paths if path.is_symlink()]
    return any(not Path(os.path.realpath(link)).is_relative_to(common) for link in links)


def content_commands(folder: Path) -> dict[str, Sequence[str]]:
    """Return the commands, by name, that compare files; run them in `without_filters`.

    A submodule has settings of its own: its commit is compared, and no git is started in it.
    """
    git = ["git", "-C", str(folder), *_SETTINGS]
    options = ["-c", "diff.autoRefreshIndex=false"]  # or it writes the index, optional locks or not
    plain = ["--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short"]
    submodules = "--ignore-submodules=dirty"
    files = ["--porcelain=v2", "--branch", "-z", "--untracked-files=normal", submodules]
    return {
        "status": [*git, "status", *files],
        "diff": [*git, *options, "diff", *plain, submodules, "--binary", "HEAD", "--"],
    }


def git_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which git uses no other repository, prompt or network."""
    return {key: value for key, value in variables.items() if key not in _MISLEADING} | _QUIET


def without_filters(variables: Mapping[str, str], settings: Iterable[str]) -> dict[str, str]:
    """Return an environment in which git starts none of the filters that `settings` define.

    No option turns filters off. Also those of the user's own settings do not run, because Git LFS
    in turn starts programs that a repository names (`lfs.extension`).

    Args:
        variables: The environment.
        settings: Names of all settings.
    """
    drivers = {name.rpartition(".")[0] for name in settings if name.startswith("filter.")}
    changed = dict(variables)
    count = int(variables.get("GIT_CONFIG_COUNT") or 0)
    for driver in sorted(drivers):
        for key, value in (("clean", ""), ("process", ""), ("required", "false")):
            changed[f"GIT_CONFIG_KEY_{count}"] = f"{driver}.{key}"
            changed[f"GIT_CONFIG_VALUE_{count}"] = value
            count += 1
    changed["GIT_CONFIG_COUNT"] = str(count)
    return changed


def read_answers(folder: Path, answers: Mapping[str, CommandAnswer]) -> tuple[GitFacts, bytes]:
    """Build the facts from git's answers to the commands."""
    status, diff = answers["status"], answers["diff"]
    header, changed, untracked = _read_status(status.text)
    commit = header.get("branch.oid")
    has_commit = commit is not None and commit != "(initial)"
    branch = header.get("branch.head")
    problems = [status.problem] if status.problem else []
    if diff.output and (status.problem or status.is_cut or any(map(_leads_out, changed))):
        problem = "git: no diff, because it might show files outside of the repository"
        diff = replace(diff, output=b"", is_cut=False, problem=diff.problem or problem)
    if status.is_cut:
        problems.append("git status: the list of files is cut")
    if diff.problem and has_commit:  # otherwise the same problem, or no answer
        problems.append(diff.problem)
    knows_files = bool(header) and not status.problem
    remotes = {}
    for entry in answers["remotes"].text.split("\0")[:-1]:  # the key, a newline and the URL
        key, _, url = entry.partition("\n")
        remotes[key.removeprefix("remote.").removesuffix(".url")] = without_url_users(url)
    facts = GitFacts(
        folder=str(folder),
        commit=commit if has_commit else None,
        branch=branch if branch != "(detached)" else None,
        remotes=remotes,
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


def _leads_out(name: str) -> bool:
    """Check a name of the index: git refuses to add such names, but compares the files."""
    return name.startswith("/") or ".." in PurePosixPath(name).parts


_FIELDS_BEFORE_PATH = {"1": 7, "2": 8, "u": 9}
