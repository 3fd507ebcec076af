"""What looks at held-out samples found: a line each in `held_out.jsonl`, and in the log."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from pipeline.timing.append import append_whole
from slurm_jobs.common.files import plain_json

log = logging.getLogger(__name__)

HELD_OUT_NAME = "held_out.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What one look found, over all ranks."""

    step: int
    """Optimizer steps completed, of all phases."""
    loss: float
    """As the training's own: nats a supervised token, or the weighted sum over levels."""
    level_losses: Mapping[str, float]
    """By name of the level; empty without levels."""
    num_tokens: int
    """That the loss is the mean of; of levels, tokens or answers told by class."""
    num_answers: int
    num_exact: int
    duration_s: float

    @property
    def exact_match(self) -> float | None:
        """Share of exact answers; None without any."""
        return self.num_exact / self.num_answers if self.num_answers else None


class HeldOutLog:
    """Appends looks; on rank 0. A file that fails, fails no training."""

    def __init__(
        self,
        path: Path | None,
        *,
        attempt: int,
        trainings: Mapping[str, int],
        basis: str,
        tell: Callable[[int, Mapping[str, float]], None] = lambda _step, _values: None,
    ) -> None:
        """Append to `path`, or nowhere.

        Args:
            path: None on all ranks but 0.
            attempt: Of the stage.
            trainings: As in the step records, of each phase, with the steps at its end.
            basis: Of what is looked at; losses of another are not to be compared.
            tell: Told too, for trackers: steps made, and values by name.
        """
        self._path, self._tell = path, tell
        self._attempt, self._trainings, self._basis = attempt, trainings, basis

    def has(self, step: int) -> bool:
        """Whether it has such a look of this training after `step` steps; on rank 0.

        A file that cannot be read has none.
        """
        assert self._path is not None
        try:
            looks = read_looks(self._path, self._trainings, self._basis)
        except OSError as error:
            log.warning("%s: looks of earlier attempts cannot be read: %s", self._path, error)
            return False
        return any(look.step == step for look in looks)

    def write(self, look: Look) -> None:
        """Append it, and say it."""
        if self._path is None:
            return
        log.info("step %d: %s", look.step, describe(look))
        exact = {} if look.exact_match is None else {"look/exact_match": look.exact_match}
        self._tell(look.step, {"look/loss": look.loss, **exact})
        about = {"attempt": self._attempt, "training": self._own(look), "basis": self._basis}
        line = {**asdict(look), "exact_match": look.exact_match, **about}
        try:
            with self._path.open("ab+", buffering=0) as stream:
                append_whole(
                    stream, _line_break(stream) + json.dumps(plain_json(line)).encode() + b"\n"
                )
        except OSError as error:
            log.warning("a look at the held-out samples is not written down: %s", error)

    def _own(self, look: Look) -> str:
        """The training that ends with the look's phase."""
        return next(name for name, last in self._trainings.items() if look.step <= last)


def describe(look: Look) -> str:
    """`held-out loss 0.1234, 12 of 16 exact`."""
    levels = ", ".join(f"{name} {loss:.4f}" for name, loss in look.level_losses.items())
    answers = f", {look.num_exact} of {look.num_answers} exact" if look.num_answers else ""
    return f"held-out loss {look.loss:.4f}{f' ({levels})' if levels else ''}{answers}"


def lowest(looks: Iterable[Look]) -> Look | None:
    """The look of the lowest loss, the first of equal ones; None if no loss is a number."""
    finite = (look for look in looks if math.isfinite(look.loss))
    return min(finite, key=lambda look: look.loss, default=None)


def read_looks(path: Path, trainings: Collection[str], basis: str | None = None) -> list[Look]:
    """Of a training, by step, the newest of each; without a file none.

    It is told by those that end with each of its phases: looks in a phase stay where later ones
    change.

    All of one basis, as what `evaluate` looks at may change between attempts; None: the newest.
    """
    lines = _read_lines(path, trainings)
    wanted = lines[-1][0] if lines and basis is None else basis
    found = {look.step: look for own, look in lines if own == wanted}
    return [found[step] for step in sorted(found)]


def _read_lines(path: Path, trainings: Collection[str]) -> list[tuple[str, Look]]:
    """Basis and look of every line of these trainings, in their order; "" of lines without one.

    Lines that a kill cut short are left out.
    """
    found: list[tuple[str, Look]] = []
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    for line in lines:
        try:
            values = json.loads(line)
            if values["training"] in trainings:
                found.append((values.get("basis", ""), _as_look(values)))
        except (ValueError, KeyError, TypeError, AttributeError):
            log.warning("%s: a line that is damaged is left out", path)
    return found


def _as_look(values: Mapping[str, Any]) -> Look:
    """As it was written: null is a loss that was no number."""
    levels = {name: _loss(value) for name, value in values["level_losses"].items()}
    own = {name: values[name] for name in Look.__dataclass_fields__}
    return Look(**{**own, "loss": _loss(own["loss"]), "level_losses": levels})


def _loss(value: float | None) -> float:
    return math.nan if value is None else value


def _line_break(stream: FileIO) -> bytes:
    """What ends a line that a kill cut short; the stream stands at its end afterwards."""
    if not stream.seek(0, os.SEEK_END):
        return b""
    stream.seek(-1, os.SEEK_END)
    return b"" if stream.read(1) == b"\n" else b"\n"
