"""Report without the paths, people and login nodes that it names, for a page to give away.

What is private follows from the run, not from a list of words: its owner and submitter, the
accounts that its jobs are charged to, the hosts that it was submitted from, its folders, and each
absolute path. Each value has one placeholder throughout, so that what differed still differs.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pwd
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.files import read_json
from slurm_jobs.report.values.report_model import RunReport
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_values
from slurm_jobs.run_folder.run_records import read_meta, read_shell_variables

_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, InputError)

_CHARGED = frozenset({"account", "wckey", "mail-user"})
"""Options of sbatch that name who a job is charged to, or reported to."""

_ROOT = 0

_FIXED_WORDS = frozenset({"ending", "kind", "outcome", "phase", "unit"})
"""Text fields of a report's parts whose values code looks up: no user chooses them."""

_NOTE = "absolute paths, users, accounts and login nodes were replaced by placeholders in <>"

_COMMANDS = frozenset({"shell", "setup"})
"""Keys of the spec with commands, in which a blank ends a path."""

_PATH = r"""
    (?<= ") /(?!/) [^"\n]+ (?= ")
    | (?<= ') /(?!/) [^'\n]+ (?= ')
    | (?<= `) /(?!/) [^`\n]+ (?= `)
    | (?<! [\w.~$*%/\\)}\]-]) (?: ~[\w.-]* )? /(?://)? (?! [\s/])
      (?: \\. | [^\s\\"'`,;:|&(){}\[\]<>] )+
"""
"""Absolute path in a text: between quotes with its blanks, else up to a blank or a separator.

`https://host/path`, `2/3`, `$HOME/data` and `./data` have none; `file:///data`, `>/data` and
`~ada/data` have.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateValues:
    """Private values of a run, by kind."""

    folders: Mapping[str, str]
    """Placeholder of the folders of the run, of all runs and of the spec, by path. The rest of a
    path in them is kept, unless they contain a whole home folder."""
    homes: tuple[str, ...]
    """Home folders; other paths in them are replaced as a whole."""
    people: tuple[str, ...]
    """Login names; found in any case."""
    accounts: tuple[str, ...]
    hosts: tuple[str, ...]
    """Hosts that the run was submitted from."""


def private_values(paths: RunPaths, report: RunReport) -> PrivateValues:
    """Collect the private values of a run from its records and from this machine's accounts.

    Records that cannot be read are left out: absolute paths are found without them.
    """
    meta = read_meta(paths)
    users = []
    for uid in filter(None, {os.getuid(), paths.run_dir.stat().st_uid, meta.uid}):  # no root
        with suppress(KeyError, OverflowError):  # this machine does not know the user
            users.append(pwd.getpwuid(uid))
    spec: Any = {}
    profile: Any = {}
    variables: Any = None
    with suppress(*_UNREADABLE):
        spec = read_resolved_values(paths)
    with suppress(*_UNREADABLE):
        profile = read_json(paths.spec_origin)["profile"]
    with suppress(*_UNREADABLE):
        variables = read_shell_variables(paths)
    runs_dir = str(spec.get("runs_dir") or paths.run_dir.parent)
    homes = _spellings([str(Path.home()), *(user.pw_dir for user in users)])
    folders = {
        str(paths.run_dir): "<run>",
        f"{runs_dir}/{meta.run_id}": "<run>",
        str(paths.run_dir.parent): "<runs>",
        runs_dir: "<runs>",
        str(PurePosixPath(meta.spec_file).parent): "<spec>",
    }
    hosts = [meta.host, *(facts.host for facts in report.provenance.submissions)]
    short_names = [host.partition(".")[0] for host in hosts]
    return PrivateValues(
        folders={
            spelling: placeholder
            for path, placeholder in reversed(folders.items())
            for spelling in _spellings([path])
            if not any(f"{home}/".startswith(f"{spelling}/") for home in homes)
        },
        homes=homes,
        people=_names(
            [] if _is_root(meta.submitted_by) else [meta.submitted_by], [u.pw_name for u in users]
        ),
        accounts=_names(_charged(spec), _charged(profile), _charged({"slurm": variables})),
        hosts=_names(hosts, (name for name in short_names if not name.isdecimal())),
    )


def _spellings(paths: Iterable[str]) -> tuple[str, ...]:
    """Return absolute paths as they are written, and without symbolic links."""
    spellings = [
        real for path in paths for real in (os.path.normpath(path), os.path.realpath(path))
    ]
    return tuple(dict.fromkeys(s for s in spellings if s.startswith("/") and s != "/"))


def _is_root(name: str) -> bool:
    """Check for the name of user 0, which is the same everywhere."""
    try:
        return pwd.getpwnam(name).pw_uid == _ROOT
    except (KeyError, ValueError):
        return False


def _names(*lists: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in lists for name in names if name))


def _charged(values: Any) -> Iterator[str]:
    """Yield the accounts and addresses in the options of sbatch, at any depth."""
    if isinstance(values, list):
        for value in values:
            yield from _charged(value)
    if not isinstance(values, Mapping):
        return
    for name, value in values.items():
        if name.endswith("slurm") and isinstance(value, Mapping):
            for option, setting in value.items():
                key = option.lower().removeprefix("sbatch_").replace("_", "-")
                if key in _CHARGED and isinstance(setting, str):
                    yield setting
        yield from _charged(value)


def without_private(report: RunReport, private: PrivateValues) -> RunReport:
    """Return the report with a placeholder for each private value; git's remotes are left out.

    Names of compute nodes, stages and relative files stay: without them no finding could be
    followed.
    """
    replaced = _Placeholders(private, {stage.name for stage in report.stages})
    submissions = []
    for facts in report.provenance.submissions:  # commands begin with the program's name alone
        names = [PurePosixPath(word).name for word in facts.command[:1]]
        command = (*names, *facts.command[1:])
        submissions.append(replace(facts, command=command, remotes={}))
    provenance = replace(report.provenance, submissions=tuple(submissions))
    changed: RunReport = replaced.value(replace(report, provenance=provenance))
    return replace(changed, notes=(*changed.notes, _NOTE))


class _Placeholders:
    """Replacement of the private values, with a number for each further path, person and host."""

    def __init__(self, private: PrivateValues, stages: Iterable[str]) -> None:
        self._private = private
        self._stages = frozenset(stages)
        self._people = _placeholders("user", [name.lower() for name in private.people])
        self._names = {
            **_placeholders("account", private.accounts),
            **_placeholders("login node", private.hosts),
        }
        self._paths: dict[str, str] = {}
        self._pattern = re.compile(self._alternatives(r"[^\W_]"), re.VERBOSE)
        self._pattern_of_keys = re.compile(self._alternatives(r"\w"), re.VERBOSE)
        self.text = functools.cache(lambda text: self._pattern.sub(self._placeholder, text))

    def _alternatives(self, letter: str) -> str:
        """Return the pattern of all private values; `letter` is what a name does not end before."""
        kinds = [
            rf"(?P<folder> (?:{_any_of(self._private.folders)}) (?![\w.-]) )",
            rf"(?P<home> (?:{_any_of(self._private.homes)}) (?! [\w./-]) )",
            f"(?P<path> {_PATH} )",
            rf"(?P<person> (?<! {letter}) (?i:{_any_of(self._private.people)}) (?! {letter}) )",
            rf"(?P<name> (?<! {letter}) (?:{_any_of(self._names)}) (?! {letter}) )",
        ]
        return "|".join(kinds)

    def _placeholder(self, match: re.Match[str]) -> str:
        words = match[0]
        if match.lastgroup == "folder":
            return self._private.folders[words]
        if match.lastgroup == "home":
            return "<home>"
        if match.lastgroup == "person":
            return self._people[words.lower()]
        if match.lastgroup == "name":
            return self._names[words]
        path = words.rstrip(".")  # the end of a sentence
        placeholder = self._paths.setdefault(path, _numbered("path", len(self._paths) + 1))
        return placeholder + words[len(path) :]

    def value(self, value: Any) -> Any:
        """Return a part of a report with its texts replaced, at any depth."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (tuple, list)):
            return type(value)(self.value(entry) for entry in value)
        if isinstance(value, Mapping):
            return {name: self.value(entry) for name, entry in value.items()}
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return value
        changes = {
            name: self._spec(entry) if name == "spec" else self.value(entry)
            for name, entry in ((name, getattr(value, name)) for name in _open_fields(type(value)))
        }
        return replace(value, **changes)

    def _spec(self, value: Any) -> Any:
        """Return a part of the spec with its texts and keys replaced."""
        if isinstance(value, Mapping):
            return {
                self._key(key): self.value(entry) if key in _COMMANDS else self._spec(entry)
                for key, entry in value.items()
            }
        if isinstance(value, (tuple, list)):
            return [self._spec(entry) for entry in value]
        return self._sub(self._pattern, value) if isinstance(value, str) else value

    def _key(self, key: str) -> str:
        """Return a key of the spec: a user `max` is not meant by `max_tokens`, or by most keys."""
        return self._sub(self._pattern if key in self._stages else self._pattern_of_keys, key)

    def _sub(self, pattern: re.Pattern[str], text: str) -> str:
        """Replace in a value or key of the spec; if it is a path, blanks do not end it."""
        if text.startswith("/") and not {'"', "\n"} & set(text):
            return pattern.sub(self._placeholder, f'"{text}"')[1:-1]
        return pattern.sub(self._placeholder, text)


def _any_of(texts: Iterable[str]) -> str:
    """Return a pattern of these texts, the longest first; without any, it matches nothing."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or "(?!)"


def _placeholders(word: str, names: Iterable[str]) -> dict[str, str]:
    unique = dict.fromkeys(names)
    return {name: _numbered(word, number) for number, name in enumerate(unique, 1)}


def _numbered(word: str, number: int) -> str:
    return f"<{word}>" if number == 1 else f"<{word} {number}>"


@functools.cache
def _open_fields(cls: type[Any]) -> tuple[str, ...]:
    """Return the fields of a part of a report that may hold a user's words."""
    hints = typing.get_type_hints(cls)
    return tuple(
        field.name
        for field in dataclasses.fields(cls)
        if typing.get_origin(hints[field.name]) is not typing.Literal
        and hints[field.name] not in {int, float, bool}
        and field.name not in _FIXED_WORDS
    )
