"""What a training says to trackers; services of others are stand-ins."""

import json
import logging
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from accelerate import tracking
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline.train.reporting.trackers import Trackers, check_packages
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.training_parts import TrackersConfig
from tests.contexts import make_context

SETTINGS = {"strategy": "ddp", "num_ranks": 2}


class Service:
    """In the place of a class of `accelerate.tracking`; what it is told is kept."""

    def __init__(self, run_name, **options):
        self.run_name, self.options, self.told, self.broken = run_name, options, [], False
        self.axes = {}
        self.tracker = SimpleNamespace(
            info=SimpleNamespace(run_id="its own name"),
            define_metric=lambda name, step_metric: self.axes.update({name: step_metric}),
        )

    def start(self):
        self.told.append("start")

    def store_init_configuration(self, values):
        self.told.append(values)

    def log(self, values, step=None):
        if self.broken:
            raise ConnectionError("no route to host")
        self.told.append((step, values))

    def finish(self):
        self.told.append("finish")


@pytest.fixture
def services(monkeypatch):
    """Those that were made, with their names."""
    made = []

    def make(kind):
        def construct(*args, **options):
            made.append((kind, Service(options.pop("run_name", ""), *args, **options)))
            return made[-1][1]

        return construct

    for name in ("wandb", "mlflow", "comet_ml"):
        monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, name, make(name))
    return made


@contextmanager
def opened(tmp_path, *use, first_step=0, training="a", rank=0, **config):
    """`first_step` None: they are never started."""
    context = make_context("train", tmp_path, run_id="shapes-1", rank=rank)
    with Trackers(TrackersConfig(use=use, **config), context) as trackers:
        if first_step is not None:
            trackers.start(first_step, training, SETTINGS)
        yield trackers


def curve(folder, name="loss"):
    found = EventAccumulator(str(folder / "tensorboard")).Reload()
    return {event.step: pytest.approx(event.value) for event in found.Scalars(name)}


def test_tensorboard_has_the_curves_of_all_attempts_without_repeated_steps(tmp_path):
    with opened(tmp_path, "tensorboard", every_steps=2) as first:
        for step in (2, 4, 6, 8):
            assert first.are_due(step)
            first.log({"loss": 1.0}, step)
        assert not first.are_due(9)
    # From the checkpoint after step 4.
    with opened(tmp_path, "tensorboard", every_steps=2, first_step=4) as second:
        second.log({"loss": 2.0}, 6)
    assert curve(tmp_path / "train") == {2: 1.0, 4: 1.0, 6: 2.0}


def test_a_training_leaves_curves_and_its_evaluation(make_train_run, heldout):
    run = make_train_run(trackers={"use": ["tensorboard"], "every_steps": 2})
    run.run_here(evaluate={"manifest": heldout, "max_new_tokens": 2})
    losses = run.losses()
    assert curve(run.output_dir) == {step: losses[step - 1] for step in (2, 4, 6)}
    for name in ("learning_rate", "grad_norm", "tokens_per_s", "step_s", "data_wait_share"):
        assert len(curve(run.output_dir, name)) == 3
    assert curve(run.output_dir, "evaluation/exact_match").keys() == {6}


def test_only_rank_0_uses_trackers_and_only_the_opened_ones(tmp_path, services):
    with opened(tmp_path, "wandb", rank=1) as trackers:
        trackers.log({"loss": 1.0}, 10)
        assert not trackers.are_due(10)
    with opened(tmp_path, "wandb", first_step=None) as trackers:
        trackers.log({"look/loss": 0.5}, 3)
    assert services == []


def test_a_later_attempt_continues_the_run_but_another_training_does_not(tmp_path, services):
    for training in ("a", "a", "b"):
        with opened(tmp_path, "wandb", "mlflow", training=training):
            pass
    assert [kind for kind, _ in services] == ["wandb", "mlflow"] * 3
    wandb = [made for kind, made in services if kind == "wandb"]
    ids = [made.options["id"] for made in wandb]
    assert ids[0] == ids[1] != ids[2]
    assert [SETTINGS in made.told for made in wandb] == [True, False, True]
    mlflow = [made.options["run_id"] for kind, made in services if kind == "mlflow"]
    assert mlflow == [None, "its own name", None]


def test_options_are_given_to_the_tracker_and_win(tmp_path, services):
    with opened(tmp_path, "wandb", project="p", options={"wandb": {"resume": "never"}}):
        pass
    ((_, made),) = services
    assert made.run_name == "p"
    assert made.options["resume"] == "never"
    assert made.options["name"] == "shapes-1 train"


def test_a_tracker_that_fails_is_reported_once_and_the_others_go_on(tmp_path, services, caplog):
    with opened(tmp_path, "wandb", "mlflow") as trackers:
        (_, wandb), (_, mlflow) = services
        wandb.broken = True
        trackers.log({"loss": 3.0}, 10)
        trackers.log({"loss": 2.0}, 20)
    (message,) = (text for text in caplog.messages if "is dropped" in text)
    assert message.startswith("trackers: wandb is dropped after an error, training continues: ")
    assert message.endswith("ConnectionError: no route to host")
    assert mlflow.told[2:] == [(10, {"loss": 3.0}), (20, {"loss": 2.0}), "finish"]
    assert "finish" not in wandb.told


def test_a_tracker_that_cannot_begin_or_end_fails_no_training(tmp_path, services, caplog):
    with opened(tmp_path, "comet_ml"):
        services[0][1].finish = None
    (tmp_path / "train/tensorboard").write_text("a file where the folder should be")
    with opened(tmp_path, "tensorboard") as trackers:
        assert not trackers.are_due(10)
    dropped = [text.partition(" is dropped")[0] for text in caplog.messages]
    assert dropped == ["trackers: comet_ml", "trackers: tensorboard"]


def test_what_an_earlier_attempt_kept_may_be_damaged(tmp_path, services):
    kept = tmp_path / "train/trackers.json"
    kept.parent.mkdir()
    kept.write_text("{")
    with opened(tmp_path, "mlflow"):
        pass
    assert services[0][1].options["run_id"] is None
    assert json.loads(kept.read_text())["runs"] == {"mlflow": "its own name"}


def test_accelerates_own_words_need_no_accelerator(tmp_path, caplog, monkeypatch):
    from accelerate import PartialState

    monkeypatch.setattr(PartialState, "_shared_state", {})  # another test may have filled it
    caplog.set_level(logging.DEBUG, logger="accelerate.tracking")
    with opened(tmp_path, "tensorboard") as trackers:
        trackers.log({"loss": 1.0}, 10)
    assert "Successfully logged to TensorBoard" in caplog.text
    assert PartialState._shared_state == {}


def test_a_missing_package_is_refused_by_name_with_what_installs_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "aim" else "x")
    with pytest.raises(StageConfigError) as refused:
        check_packages(TrackersConfig(use=("tensorboard", "aim")))
    assert f"`{sys.executable} -m pip install aim`" in str(refused.value)
    check_packages(TrackersConfig(use=("tensorboard",)))


def test_unused_options_and_duplicate_trackers_are_refused():
    with pytest.raises(ValueError, match="options of wandb are given, which use does not name"):
        TrackersConfig(use=("tensorboard",), options={"wandb": {}})
    with pytest.raises(ValueError, match="name each tracker once"):
        TrackersConfig(use=("wandb", "wandb"))


def test_entries_before_the_opening_are_sent_when_trackers_open(tmp_path, services):
    with opened(tmp_path, "comet_ml", first_step=None) as trackers:
        trackers.log({"look/loss": 0.5}, 3)
        trackers.start(5, "a", SETTINGS)
        trackers.log({"loss": 1.0}, 6)
    ((_, made),) = services
    looked, stepped = (3, {"look/loss": 0.5}), (6, {"loss": 1.0})
    assert made.told == ["start", SETTINGS, looked, stepped, "finish"]


def test_wandb_gets_steps_as_a_metric_because_it_drops_older_steps(tmp_path, services):
    for first_step, steps in ((0, (1, 2, 3)), (1, (2, 3, 4))):
        with opened(tmp_path, "wandb", first_step=first_step) as trackers:
            for step in steps:
                trackers.log({"loss": 1.0}, step)
    (_, first), (_, second) = services
    assert first.axes == second.axes == {"*": "num_steps_done"}
    told = [entry for entry in second.told if isinstance(entry, tuple)]
    assert told == [(None, {"loss": 1.0, "num_steps_done": step}) for step in (2, 3, 4)]
