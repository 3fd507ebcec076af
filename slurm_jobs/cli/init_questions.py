"""Questions of `init` on a terminal: data, model, account, partition.

Enter accepts the default. Questions go to standard error: standard output lists the files.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import InputError
from slurm_jobs.common.steering import plain
from slurm_jobs.starter.data import expanded
from slurm_jobs.starter.model import Place, Room
from slurm_jobs.starter.weights import DEFAULT_MODEL, look_at

_DEFAULT = "Slurm's default"


def ask(place: Place, given: Mapping[str, Any]) -> tuple[Place, dict[str, Any]]:
    """Ask for what is missing; see the module.

    Returns:
        The place with the user's choices, and `data` and `model`.

    Raises:
        InputError: the input ended before all was answered.
    """
    answers = dict(given)
    if answers["data"] is None:
        answers["data"] = _data()
    if answers["data"] is None:
        return place, answers
    if answers["model"] is None:
        answers["model"] = _model()
    if len(place.accounts) > 1:
        account = _one_of("account", (_DEFAULT, *place.accounts), place.account or _DEFAULT)
        place = dataclasses.replace(place, account=None if account == _DEFAULT else account)
    if len(place.gpu_rooms) > 1 and place.gpu is not None:
        rooms = {_room_name(room): room for room in place.gpu_rooms}
        chosen = _one_of("GPUs", list(rooms), _room_name(place.gpu))
        place = dataclasses.replace(place, gpu=rooms[chosen])
    return place, answers


def _data() -> Path | None:
    what = "your manifest or folder of images (Enter: the demo, which brings its own)"
    while text := _answer(what):
        try:
            path = expanded(Path(text))
            path.stat()
        except (InputError, OSError) as error:
            _refuse(text, error)
        else:
            return path
    return None


def _model() -> str:
    what = f"model: a folder, or OWNER/NAME on the hub [{DEFAULT_MODEL}]"
    while text := _answer(what):
        try:
            look_at(text, as_named=text)
        except (InputError, OSError) as error:
            _refuse(text, error)
        else:
            return text
    return ""


def _refuse(text: str, error: Exception) -> None:
    told = f"{text}: {error.strerror}" if isinstance(error, OSError) else str(error)
    print(plain(told), file=sys.stderr)


def _room_name(room: Room) -> str:
    return f"{room.partition}:{room.gpu_type}" if room.gpu_type else str(room.partition)


def _one_of(what: str, known: Sequence[str], default: str) -> str:
    while True:
        text = _answer(f"{what}: {', '.join(known)} [{default}]") or default
        if text in known:
            return text
        print(f"none of {', '.join(known)}: {text}", file=sys.stderr)


def _answer(question: str) -> str:
    print(f"{question}: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line.endswith("\n"):  # Ctrl-D: the user wants to stop
        print(file=sys.stderr)
        message = "nothing was written: the input ended; --yes asks nothing"
        raise InputError(message)
    return line.strip()
