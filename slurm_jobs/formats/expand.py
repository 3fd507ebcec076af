"""Expansion of `~` and variables in a path or other text that a user wrote."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping

from slurm_jobs.base.errors import PathExpansionError
from slurm_jobs.formats.configs.output_references import referenced_stage

_DOLLAR = re.compile(r"\$(?:(\$)|([A-Za-z_][A-Za-z0-9_]*)|\{([^{}]*)\})?", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LITERAL = "for a dollar sign write `$$`"


def expand_path(path: str, variables: Mapping[str, str] | None = None) -> str:
    """Return `path` with `$NAME` and `${NAME}` replaced anywhere, `~` and `~user` at its start.

    `$$` becomes a dollar sign. A reference to another stage (`${stage.output_dir}`) stays.

    Args:
        path: as the user wrote it.
        variables: by default those of this process.

    Raises:
        PathExpansionError: there is no such user or variable, the variable is empty, or a dollar
            sign begins no name.
    """
    known = os.environ if variables is None else variables

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        if match[3] is not None and referenced_stage(match[3]) is not None:
            return match[0]
        return _variable(match[0], match[2] or match[3] or "", known, "folder")

    text = _DOLLAR.sub(value, path)
    if not text.startswith("~"):
        return text
    user, slash, rest = text[1:].partition("/")
    home = known.get("HOME", "") if not user else ""
    try:
        home = home or (pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())).pw_dir
    except (KeyError, ValueError):
        message = "`~` is unknown here: HOME is not set, and this user has no entry in passwd"
        if user:
            message = (
                f"this machine has no user `{user}`; write `~/{user}` for a folder in your home, "
                f"or `./~{user}` for a name that begins with `~`"
            )
        raise PathExpansionError(message) from None
    return f"{home.rstrip('/')}{slash}{rest}" or "/"


def expand_text(text: str, variables: Mapping[str, str] | None = None) -> str:
    """Return `text` with `$NAME` and `${NAME}` replaced; `$$` becomes a dollar sign.

    A dollar sign that begins no name stays: `about 5$`.

    Args:
        text: as the user wrote it.
        variables: by default those of this process.

    Raises:
        PathExpansionError: there is no such variable, it is empty, or it belongs to a job.
    """
    known = os.environ if variables is None else variables

    def value(match: re.Match[str]) -> str:
        if match[0] in {"$", "$$"}:
            return "$"
        name = match[2] or match[3] or ""
        if name.startswith("SLURM_"):
            message = (
                f"`{match[0]}` is a variable of a job, and this value is fixed before the job "
                f"exists: write the value; {_LITERAL}"
            )
            raise PathExpansionError(message)
        return _variable(match[0], name, known, "value")

    return _DOLLAR.sub(value, text)


def literal_text(text: str) -> str:
    """Return `text` in the form that `expand_text` turns into exactly these characters."""
    return text.replace("$", "$$")


def expand_typed(text: str) -> str:
    """Return a path that a user typed: unchanged if it exists, else expanded.

    A shell has already expanded most of it, and a remaining dollar sign may be part of the name.
    After `--option=` and a comma, and in quotes, it expands no `~`.

    Raises:
        PathExpansionError: see `expand_path`.
    """
    try:
        is_there = os.path.lexists(text)
    except ValueError:  # a NUL byte
        is_there = False
    return text if is_there else expand_path(text)


def literal_path(path: str) -> str:
    """Return `path` in the form that a spec needs to mean exactly these characters."""
    text = re.sub(
        r"\$(\{([^{}]*)\})?",
        lambda match: match[0] if referenced_stage(match[2] or "") else f"${match[0]}",
        path,
    )
    return f"./{text}" if text.startswith("~") else text


def _variable(shown: str, name: str, variables: Mapping[str, str], what: str) -> str:
    """Return the value of a variable; `what` the text that holds it can be written as instead."""
    if not _NAME.fullmatch(name):
        message = f"`{shown}` is not a variable (write `$NAME` or `${{NAME}}`); {_LITERAL}"
        raise PathExpansionError(message)
    value = variables.get(name)
    if value is None:
        import difflib

        near = difflib.get_close_matches(name, sorted(variables), n=1, cutoff=0.8)
        folded = {known.lower(): known for known in variables}
        meant = folded.get(name.lower()) or next(iter(near), None)
        hint = f"did you mean `${meant}`?" if meant else f"set it, or write the {what}"
        message = f"no environment variable `{name}` is set here; {hint}"
        raise PathExpansionError(message)
    if not value:
        message = f"the environment variable `{name}` is empty here: set it, or write the {what}"
        raise PathExpansionError(message)
    return value
