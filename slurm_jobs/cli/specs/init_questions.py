"""Questions of `init` on a terminal: data, model, account, partition.

Enter accepts the default. Questions go to standard error: standard output lists the files.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.texts.control_characters import plain
from slurm_jobs.commands.starter.data_inspection import existing
from slurm_jobs.commands.starter.model_inspection import DEFAULT_MODEL, inspect_weights
from slurm_jobs.commands.starter.starter_facts import JobPlace

T = TypeVar("T")
_DEFAULT = "Slurm's default"


def ask(place: JobPlace, given: Mapping[str, Any]) -> tuple[JobPlace, dict[str, Any]]:
    """Ask for what is missing; see the module.

    Returns:
        The place with the user's choices, and `data` and `model`.

    Raises:
        InputError: the input ended before all was answered.
    """
    answers = dict(given)
    if answers["data"] is None:
        what = "your manifest or folder of images (Enter: the demo, which brings its own)"
        answers["data"] = _valid_answer(what, lambda text: existing(Path(text)))
    if answers["data"] is None:
        return place, answers
    if answers["model"] is None:
        what = f"model: a folder, or OWNER/NAME on the hub [{DEFAULT_MODEL}]"
        model = _valid_answer(what, lambda text: inspect_weights(text, as_named=text))
        answers["model"] = model.name if model is not None else ""
    if len(place.accounts) > 1:
        account = _one_of("account", (_DEFAULT, *place.accounts), place.account or _DEFAULT)
        place = dataclasses.replace(place, account=None if account == _DEFAULT else account)
    if len(place.gpu_rooms) > 1 and place.gpu is not None:
        names = {
            f"{room.partition}:{room.gpu_type}" if room.gpu_type else str(room.partition): room
            for room in place.gpu_rooms
        }
        default = next(name for name, room in names.items() if room == place.gpu)
        place = dataclasses.replace(place, gpu=names[_one_of("GPUs", list(names), default)])
    return place, answers


def _valid_answer(question: str, parse: Callable[[str], T]) -> T | None:
    """Ask until the answer can be parsed; return None for Enter."""
    while text := _answer(question):
        try:
            return parse(text)
        except (InputError, OSError) as error:
            problem = f"{text}: {error.strerror}" if isinstance(error, OSError) else str(error)
            print(plain(problem), file=sys.stderr)
    return None


def _one_of(what: str, known: Sequence[str], default: str) -> str:
    while True:
        text = _answer(f"{what}: {', '.join(known)} [{default}]") or default
        if text in known:
            return text
        print(f"`{text}` is none of these: {', '.join(known)}", file=sys.stderr)


def _answer(question: str) -> str:
    print(f"{question}: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line.endswith("\n"):  # Ctrl-D: the user wants to stop
        print(file=sys.stderr)
        message = "nothing was written: the input ended before all was answered; --yes asks nothing"
        raise InputError(message)
    return line.strip()
