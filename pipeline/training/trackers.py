"""Rank 0 tells trackers (TensorBoard, Weights & Biases, ...) of the course of a training.

They are reached through the classes of `accelerate.tracking`, without an `Accelerator`. A package
that is missing is an error before anything else is done; whatever fails later is said once, and
training goes on without that tracker.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.files import read_json, write_json_atomic
from slurm_jobs.common.stage_config.trackers import TrackersConfig

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)

_KEPT_FILE = "trackers.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackedRun:
    """What a tracker is to go on with, or to begin."""

    project: str
    label: str
    """For people: the run and its stage."""
    identity: str
    """Equal for attempts at the same training: 32 letters and digits."""
    folder: Path
    """Of the stage, for what is written to files."""
    first_step: int
    """Steps done before this attempt."""
    kept_id: str | None
    """What the tracker itself called the run that an earlier attempt began."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """How one kind of tracker begins a run, or goes on with it."""

    arguments: Callable[[TrackedRun], dict[str, Any]]
    """Of its class in `accelerate.tracking`."""
    read_id: Callable[[Any], str] | None = None
    """Of a run that has no name of ours: what a later attempt goes on with."""
    takes_settings: bool = True
    step_metric: str | None = None
    """Under which steps are told, where the tracker's own count of them takes none twice."""


def _tensorboard(run: TrackedRun) -> dict[str, Any]:
    # purge_step: entries of steps that are made again give way to the new ones.
    return {
        "run_name": "tensorboard",
        "logging_dir": run.folder,
        "purge_step": run.first_step + 1,
    }


def _wandb(run: TrackedRun) -> dict[str, Any]:
    return {
        "run_name": run.project,
        "name": run.label,
        "id": run.identity,
        "resume": "allow",
        "dir": run.folder,
    }


def _mlflow(run: TrackedRun) -> dict[str, Any]:
    return {"experiment_name": run.project, "run_name": run.label, "run_id": run.kept_id}


def _aim(run: TrackedRun) -> dict[str, Any]:
    return {"run_name": run.label, "logging_dir": run.folder, "run_hash": run.kept_id}


def _clearml(run: TrackedRun) -> dict[str, Any]:
    goes_on = {} if run.kept_id is None else {"continue_last_task": run.kept_id}
    return {"run_name": run.project, "task_name": run.label, **goes_on}


def _comet_ml(run: TrackedRun) -> dict[str, Any]:
    return {"run_name": run.project, "experiment_key": run.identity, "mode": "get_or_create"}


def _dvclive(run: TrackedRun) -> dict[str, Any]:
    return {"dir": str(run.folder / "dvclive"), "resume": True, "save_dvc_exp": False}


def _swanlab(run: TrackedRun) -> dict[str, Any]:
    return {
        "run_name": run.project,
        "experiment_name": run.label,
        "id": run.identity,
        "resume": "allow",
        "logdir": str(run.folder / "swanlog"),
    }


def _trackio(run: TrackedRun) -> dict[str, Any]:
    return {"run_name": run.project, "name": run.identity, "resume": "allow"}


_KINDS: Mapping[str, _Kind] = {
    "tensorboard": _Kind(arguments=_tensorboard, takes_settings=False),  # it opens another run
    # https://docs.wandb.ai/models/track/log/customize-logging-axes: what is behind the newest of
    # its own steps, of an earlier attempt too, is thrown away.
    "wandb": _Kind(arguments=_wandb, step_metric="num_steps_done"),
    "mlflow": _Kind(arguments=_mlflow, read_id=lambda tracked: tracked.info.run_id),
    "aim": _Kind(arguments=_aim, read_id=lambda tracked: tracked.hash),
    "clearml": _Kind(arguments=_clearml, read_id=lambda tracked: tracked.id),
    "comet_ml": _Kind(arguments=_comet_ml),
    "dvclive": _Kind(arguments=_dvclive),
    "swanlab": _Kind(arguments=_swanlab),
    "trackio": _Kind(arguments=_trackio),
}


def check_packages(config: TrackersConfig) -> None:
    """Make sure that what trackers need can be imported; the same on all ranks.

    Raises:
        StageConfigError: it cannot, with what installs it.
    """
    missing = [name for name in config.use if importlib.util.find_spec(name) is None]
    if missing:
        message = (
            f"trackers.use has {' and '.join(missing)}, and {sys.executable} has no such package: "
            f"type `{sys.executable} -m pip install {' '.join(missing)}`, or leave it out"
        )
        raise StageConfigError(message)


class Trackers:
    """All trackers of an attempt, on rank 0; of other ranks, and without any, it does nothing."""

    def __init__(self, config: TrackersConfig, context: TaskContext) -> None:
        self._config = config
        self._context = context
        self._names = config.use if context.rank == 0 else ()
        self._open: dict[str, Any] | None = None
        self._early: list[tuple[int, dict[str, float]]] = []

    @property
    def are_waiting(self) -> bool:
        """Whether there are some, and they are not open yet."""
        return bool(self._names) and self._open is None

    def start(self, first_step: int, training: str, settings: Mapping[str, Any]) -> None:
        """Open them, in the run that an earlier attempt at the same training began.

        Does nothing if they are open: a later phase goes on with them.

        Args:
            first_step: Steps done before this attempt.
            training: Its fingerprint; another one is another run.
            settings: Numbers and words that trackers show beside the curves.
        """
        if not self.are_waiting:
            return
        self._open = {}
        identity = self._identity(training)
        kept = self._try(_KEPT_FILE, self._read_kept, identity) or {}
        for name in self._names:
            tracker = self._try(name, self._begin, name, identity, first_step, kept.get(name))
            if tracker is None:
                continue
            self._open[name] = tracker
            if name not in kept:
                own_id = self._try(name, self._first_words, name, tracker, settings)
                kept |= {} if own_id is None else {name: own_id}
        self._try(_KEPT_FILE, self._keep, identity, kept)
        early, self._early = self._early, []
        for num_steps_done, values in early:
            self.log(values, num_steps_done)

    def are_due(self, num_steps_done: int) -> bool:
        """Whether they are to be told of this step."""
        return bool(self._open) and num_steps_done % self._config.every_steps == 0

    def log(self, values: Mapping[str, float], num_steps_done: int) -> None:
        """Tell all of them; what comes before they are open, as they are opened.

        They open where this attempt goes on, after looks that an earlier one left undone. Opened
        before these, they would take steps between for steps that are made again.
        """
        if self.are_waiting:
            self._early.append((num_steps_done, dict(values)))
            return
        for name, tracker in list((self._open or {}).items()):
            self._try(name, self._tell, name, tracker, values, num_steps_done)

    @staticmethod
    def _tell(name: str, tracker: Any, values: Mapping[str, float], num_steps_done: int) -> None:
        own = _KINDS[name].step_metric
        if own is None:
            tracker.log(dict(values), step=num_steps_done)
        else:
            tracker.log({**values, own: num_steps_done})

    def close(self) -> None:
        """Let them write what they have not yet written."""
        for name, tracker in list((self._open or {}).items()):
            self._try(name, tracker.finish)
        self._open = {}

    def _begin(self, name: str, identity: str, first_step: int, kept_id: str | None) -> Any:
        run = TrackedRun(
            project=self._config.project,
            label=f"{self._context.run_id} {self._context.stage}",
            identity=identity,
            folder=self._context.output_dir,
            first_step=first_step,
            kept_id=kept_id or None,
        )
        arguments = {**_KINDS[name].arguments(run), **self._config.options.get(name, {})}
        tracker = _tracker_class(name)(**arguments)
        tracker.main_process_only = False  # it is made on rank 0 alone, and need not ask who it is
        tracker.start()
        if (own := _KINDS[name].step_metric) is not None:
            tracker.tracker.define_metric("*", step_metric=own)
        return tracker

    def _first_words(self, name: str, tracker: Any, settings: Mapping[str, Any]) -> str:
        """Said once a run; what a later attempt finds it by, if it needs that."""
        kind = _KINDS[name]
        if kind.takes_settings:
            tracker.store_init_configuration(dict(settings))
        return "" if kind.read_id is None else kind.read_id(tracker.tracker)

    def _identity(self, training: str) -> str:
        at = self._context
        words = f"{at.run_id} {at.stage} {at.slice_index} {at.num_again} {training}"
        return hashlib.sha256(words.encode()).hexdigest()[:32]

    def _read_kept(self, identity: str) -> dict[str, str]:
        """By tracker, what it called the run; empty for those that need no such name."""
        try:
            found = read_json(self._context.output_dir / _KEPT_FILE)
        except FileNotFoundError:
            return {}
        return dict(found["runs"]) if found["identity"] == identity else {}

    def _keep(self, identity: str, kept: Mapping[str, str]) -> None:
        values = {"identity": identity, "runs": dict(kept)}
        write_json_atomic(self._context.output_dir / _KEPT_FILE, values)

    def _try(self, name: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """What it answers; None if it fails, and then that tracker is told of nothing any more."""
        try:
            return act(*args, **options)
        except Exception as error:  # noqa: BLE001 - a training goes on without its curves
            log.warning(
                "trackers: %s is given up, training goes on: %s: %s",
                name, type(error).__name__, error,
            )  # fmt: skip
            if self._open:
                self._open.pop(name, None)
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Log(logging.LoggerAdapter):
    """In the place of accelerate's own, which refuses to work without an `Accelerator`."""

    warning_once = logging.LoggerAdapter.warning


def _tracker_class(name: str) -> Any:
    from accelerate import tracking

    tracking.logger = _Log(logging.getLogger(tracking.__name__), {})
    return tracking.LOGGER_TYPE_TO_CLASS[name]
