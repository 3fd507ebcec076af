"""Results of held-out evaluations: a line each in `held_out.jsonl`, and in the log."""

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
    """Result of one evaluation, over all ranks."""

    step: int
    """Optimizer steps completed, of all phases."""
    loss: float
    """Same unit as the training loss: nats per supervised token, or the weighted sum over
    levels."""
    level_losses: Mapping[str, float]
    """By name of the level; empty without levels."""
    num_tokens: int
    """Tokens that the loss is averaged over; for levels, tokens or classified answers."""
    num_answers: int
    num_exact: int
    duration_s: float

    @property
    def exact_match(self) -> float | None:
        """Share of exact answers; None without any."""
        return self.num_exact / self.num_answers if self.num_answers else None


class HeldOutLog:
    """Appends results; on rank 0. A failing file does not fail training."""

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
            attempt: Attempt of the stage.
            trainings: Training of each phase, as in the step records, with the steps at its
                end.
            basis: Hash of the samples; losses of another basis are not comparable.
            tell: Also called for trackers: with steps made, and values by name.
        """
        self._path, self._tell = path, tell
        self._attempt, self._trainings, self._basis = attempt, trainings, basis

    def has(self, step: int) -> bool:
        """Check for a result of this training after `step` steps; on rank 0.

        An unreadable file has none.
        """
        assert self._path is not None
        try:
            looks = read_looks(self._path, self._trainings, self._basis)
        except OSError as error:
            log.warning("%s: results of earlier attempts cannot be read: %s", self._path, error)
            return False
        return any(look.step == step for look in looks)

    def write(self, look: Look) -> None:
        """Append and log it."""
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
            log.warning("a held-out result cannot be written: %s", error)

    def _own(self, look: Look) -> str:
        """Return the training that ends with the result's phase."""
        return next(name for name, last in self._trainings.items() if look.step <= last)


def describe(look: Look) -> str:
    """Return `held-out loss 0.1234, 12 of 16 exact`."""
    levels = ", ".join(f"{name} {loss:.4f}" for name, loss in look.level_losses.items())
    answers = f", {look.num_exact} of {look.num_answers} exact" if look.num_answers else ""
    return f"held-out loss {look.loss:.4f}{f' ({levels})' if levels else ''}{answers}"


def lowest(looks: Iterable[Look]) -> Look | None:
    """Return the result with the lowest loss, the first of equals; None if no loss is finite."""
    finite = (look for look in looks if math.isfinite(look.loss))
    return min(finite, key=lambda look: look.loss, default=None)


def read_looks(path: Path, trainings: Collection[str], basis: str | None = None) -> list[Look]:
    """Read a training's results, by step, the newest of each; none without a file.

    Trainings are identified per phase: a phase's results stay valid if later phases change.

    All have one basis, because the samples may change between attempts; None: the newest.
    """
    lines = _read_lines(path, trainings)
    wanted = lines[-1][0] if lines and basis is None else basis
    found = {look.step: look for own, look in lines if own == wanted}
    return [found[step] for step in sorted(found)]


def _read_lines(path: Path, trainings: Collection[str]) -> list[tuple[str, Look]]:
    """Return basis and result of every line of these trainings, in order; "" if it has no basis.

    Lines that a kill truncated are left out.
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
            log.warning("%s: a damaged line is ignored", path)
    return found


def _as_look(values: Mapping[str, Any]) -> Look:
    """Parse values; null is a loss that was not finite."""
    levels = {name: _loss(value) for name, value in values["level_losses"].items()}
    own = {name: values[name] for name in Look.__dataclass_fields__}
    return Look(**{**own, "loss": _loss(own["loss"]), "level_losses": levels})


def _loss(value: float | None) -> float:
    return math.nan if value is None else value


def _line_break(stream: FileIO) -> bytes:
    """Return the line break that a truncated line needs; the stream is at its end afterwards."""
    if not stream.seek(0, os.SEEK_END):
        return b""
    stream.seek(-1, os.SEEK_END)
    return b"" if stream.read(1) == b"\n" else b"\n"
