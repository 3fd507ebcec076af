"""Trackers (TensorBoard, Weights & Biases, ...) of a training, on rank 0.

They use the classes of `accelerate.tracking`, without an `Accelerator`. A missing package is an
error at the start; later failures are logged once, and training continues without that tracker.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.formats.configs.training_parts import TrackersConfig
from slurm_jobs.formats.records.task_context import TaskContext

if TYPE_CHECKING:
    from typing_extensions import Self


log = logging.getLogger(__name__)

_RUN_IDS_FILE = "trackers.json"
_READ_IDS = {
    "mlflow": attrgetter("info.run_id"),
    "aim": attrgetter("hash"),
    "clearml": attrgetter("id"),
}
"""Reads the id of a run that we cannot name, with which a later attempt continues it."""
_STEP_METRICS = {"wandb": "num_steps_done"}
"""Metric for the step, for trackers whose own step counter never goes back: W&B drops entries
before its newest step, even of an earlier attempt
(https://docs.wandb.ai/models/track/log/customize-logging-axes)."""


def check_packages(config: TrackersConfig) -> None:
    """Check that the trackers' packages can be imported; the same on all ranks.

    Raises:
        StageConfigError: one cannot, with the command that installs it.
    """
    missing = [name for name in config.use if importlib.util.find_spec(name) is None]
    if missing:
        message = (
            f"trackers.use has {' and '.join(missing)}, and {sys.executable} has no such "
            f"package: type `{sys.executable} -m pip install {' '.join(missing)}`, or remove the "
            "tracker"
        )
        raise StageConfigError(message)


class Trackers:
    """All trackers of an attempt, on rank 0; does nothing on other ranks, and without any."""

    def __init__(self, config: TrackersConfig, context: TaskContext) -> None:
        self._config = config
        self._context = context
        self._names = config.use if context.rank == 0 else ()
        self._trackers: dict[str, Any] = {}
        self._early: list[tuple[int, dict[str, float]]] = []
        self.are_waiting = bool(self._names)
        """True if there are trackers that are not open yet."""

    def start(self, first_step: int, training: str, settings: Mapping[str, Any]) -> None:
        """Open them, in the run that an earlier attempt at the same training started.

        Does nothing if they are open: a later phase continues with them.

        `first_step` steps were done before this attempt. Another fingerprint of the `training` is
        another run. `settings` are shown next to the curves.
        """
        if not self.are_waiting:
            return
        self.are_waiting = False
        task = self._context
        words = f"{task.run_id} {task.stage} {task.slice_index} {task.num_again} {training}"
        identity = hashlib.sha256(words.encode()).hexdigest()[:32]
        run_ids: dict[str, str] = {}
        with self._drop_after_error(_RUN_IDS_FILE):
            run_ids = self._read_run_ids(identity)
        for name in self._names:
            with self._drop_after_error(name):
                tracker = self._open_run(name, identity, first_step, run_ids.get(name))
                self._trackers[name] = tracker
                if name not in run_ids:
                    if name != "tensorboard":  # which opens another run for them
                        tracker.store_init_configuration(dict(settings))
                    read_id = _READ_IDS.get(name)
                    run_ids[name] = "" if read_id is None else str(read_id(tracker.tracker))
        with self._drop_after_error(_RUN_IDS_FILE):
            path = task.output_dir / _RUN_IDS_FILE
            write_json_atomic(path, {"identity": identity, "runs": run_ids})
        for num_steps_done, values in self._early:
            self.log(values, num_steps_done)
        self._early = []

    def are_due(self, num_steps_done: int) -> bool:
        """Check whether they are due an update at this step."""
        return bool(self._trackers) and num_steps_done % self._config.every_steps == 0

    def log(self, values: Mapping[str, float], num_steps_done: int) -> None:
        """Send values to all of them; values from before they are open are sent at opening.

        They are opened at this attempt's starting step, after evaluations that an earlier
        attempt left out. Otherwise they would treat the steps in between as repeated.
        """
        if self.are_waiting:
            self._early.append((num_steps_done, dict(values)))
            return
        for name, tracker in list(self._trackers.items()):
            with self._drop_after_error(name):
                if name in _STEP_METRICS:
                    tracker.log({**values, _STEP_METRICS[name]: num_steps_done})
                else:
                    tracker.log(dict(values), step=num_steps_done)

    def close(self) -> None:
        """Flush and close them."""
        for name, tracker in list(self._trackers.items()):
            with self._drop_after_error(name):
                tracker.finish()
        self._trackers = {}
        self.are_waiting = False

    def _open_run(self, name: str, identity: str, first_step: int, run_id: str | None) -> Any:
        """Open a tracker's run.

        `identity` is equal for attempts at the same training: 32 letters and digits. `run_id` is
        the tracker's own id of the run that an earlier attempt started, if it needs one.
        """
        project, folder = self._config.project, self._context.output_dir
        label = f"{self._context.run_id} {self._context.stage}"
        by_id = {"id": identity, "resume": "allow"}
        arguments: dict[str, dict[str, Any]] = {
            "tensorboard": {
                "run_name": "tensorboard",
                "logging_dir": folder,
                # entries of repeated steps are replaced by the new ones
                "purge_step": first_step + 1,
            },
            "wandb": {"run_name": project, "name": label, "dir": folder, **by_id},
            "mlflow": {"experiment_name": project, "run_name": label, "run_id": run_id or None},
            "aim": {"run_name": label, "logging_dir": folder, "run_hash": run_id or None},
            "clearml": {
                "run_name": project,
                "task_name": label,
                **({"continue_last_task": run_id} if run_id else {}),
            },
            "comet_ml": {"run_name": project, "experiment_key": identity, "mode": "get_or_create"},
            "dvclive": {"dir": str(folder / "dvclive"), "resume": True, "save_dvc_exp": False},
            "swanlab": {
                "run_name": project,
                "experiment_name": label,
                "logdir": str(folder / "swanlog"),
                **by_id,
            },
            "trackio": {"run_name": project, "name": identity, "resume": "allow"},
        }
        options = self._config.options.get(name, {})
        from accelerate import tracking

        tracking.logger = _Log(logging.getLogger(tracking.__name__), {})
        tracker = tracking.LOGGER_TYPE_TO_CLASS[name](**{**arguments[name], **options})
        # created on rank 0 alone, so it need not check the rank
        tracker.main_process_only = False
        tracker.start()
        if name in _STEP_METRICS:
            tracker.tracker.define_metric("*", step_metric=_STEP_METRICS[name])
        return tracker

    def _read_run_ids(self, identity: str) -> dict[str, str]:
        """Return each tracker's id of the run; empty for those that need no such id."""
        try:
            stored = read_json(self._context.output_dir / _RUN_IDS_FILE)
        except FileNotFoundError:
            return {}
        return dict(stored["runs"]) if stored["identity"] == identity else {}

    @contextmanager
    def _drop_after_error(self, name: str) -> Iterator[None]:
        """Log an error of the block instead of raising it; that tracker gets no more calls."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - training continues without its curves
            log.warning(
                "trackers: %s is dropped after an error, training continues: %s: %s",
                name, type(error).__name__, error,
            )  # fmt: skip
            self._trackers.pop(name, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _Log(logging.LoggerAdapter):  # type: ignore[type-arg]  # takes none in Python 3.10
    """Replaces accelerate's own logger, which needs an `Accelerator`."""

    warning_once = logging.LoggerAdapter.warning
