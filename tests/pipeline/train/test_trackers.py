"""Trackers: TensorBoard's files are real, the services of others are stand-ins."""

import json
import logging
import sys
from types import SimpleNamespace

import pytest
from accelerate import tracking
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline.train.trackers import Trackers, check_packages
from slurm_jobs.shared.configs.training_parts import TrackersConfig
from slurm_jobs.shared.errors import StageConfigError
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
    """By name, those that were made."""
    made = []

    def make(kind):
        def construct(*args, **options):
            made.append((kind, Service(options.pop("run_name", ""), *args, **options)))
            return made[-1][1]

        return construct

    for name in ("wandb", "mlflow", "comet_ml"):
        monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, name, make(name))
    return made


def context_of(tmp_path, **changes):
    return make_context("train", tmp_path, run_id="shapes-1", **changes)


def curve(folder, name="loss"):
    found = EventAccumulator(str(folder / "tensorboard")).Reload()
    return {event.step: pytest.approx(event.value) for event in found.Scalars(name)}


def test_tensorboard_has_the_curves_of_all_attempts_without_steps_that_were_made_again(tmp_path):
    config = TrackersConfig(use=("tensorboard",), every_steps=2)
    context = context_of(tmp_path)
    with Trackers(config, context) as first:
        first.start(0, "a", SETTINGS)
        for step in (2, 4, 6, 8):
            assert first.are_due(step)
            first.log({"loss": 1.0}, step)
        assert not first.are_due(9)
    with Trackers(config, context) as second:
        second.start(4, "a", SETTINGS)  # from the checkpoint after step 4
        second.log({"loss": 2.0}, 6)
    assert curve(context.output_dir) == {2: 1.0, 4: 1.0, 6: 2.0}


def test_a_training_leaves_curves_and_its_evaluation(make_train_run):
    trackers = {"use": ["tensorboard"], "every_steps": 2}
    run = make_train_run(trackers=trackers)
    heldout = run.demo_data / "render/heldout.jsonl"
    run.run_here(evaluate={"manifest": str(heldout), "max_new_tokens": 2})
    losses = run.losses()
    assert curve(run.output_dir) == {step: losses[step - 1] for step in (2, 4, 6)}
    for name in ("learning_rate", "grad_norm", "tokens_per_s", "step_s", "data_wait_share"):
        assert len(curve(run.output_dir, name)) == 3
    assert curve(run.output_dir, "evaluation/exact_match").keys() == {6}


def test_only_rank_0_tells_trackers(tmp_path, services):
    with Trackers(TrackersConfig(use=("wandb",)), context_of(tmp_path, rank=1)) as trackers:
        trackers.start(0, "a", SETTINGS)
        trackers.log({"loss": 1.0}, 10)
        assert not trackers.are_due(10)
    assert services == []


def test_a_later_attempt_goes_on_with_the_run_and_another_training_does_not(tmp_path, services):
    config = TrackersConfig(use=("wandb", "mlflow"))
    for training in ("a", "a", "b"):
        with Trackers(config, context_of(tmp_path)) as trackers:
            trackers.start(0, training, SETTINGS)
    names = [kind for kind, _ in services]
    assert names == ["wandb", "mlflow"] * 3
    wandb = [made for kind, made in services if kind == "wandb"]
    ids = [made.options["id"] for made in wandb]
    assert ids[0] == ids[1] != ids[2]
    assert [SETTINGS in made.told for made in wandb] == [True, False, True]
    mlflow = [made.options["run_id"] for kind, made in services if kind == "mlflow"]
    assert mlflow == [None, "its own name", None]


def test_options_are_given_to_the_tracker_and_win(tmp_path, services):
    config = TrackersConfig(use=("wandb",), project="p", options={"wandb": {"resume": "never"}})
    with Trackers(config, context_of(tmp_path)) as trackers:
        trackers.start(0, "a", SETTINGS)
    ((_, made),) = services
    assert made.run_name == "p"
    assert made.options["resume"] == "never"
    assert made.options["name"] == "shapes-1 train"


def test_a_tracker_that_fails_is_said_once_and_the_others_go_on(tmp_path, services, caplog):
    with Trackers(TrackersConfig(use=("wandb", "mlflow")), context_of(tmp_path)) as trackers:
        trackers.start(0, "a", SETTINGS)
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
    with Trackers(TrackersConfig(use=("comet_ml",)), context_of(tmp_path)) as trackers:
        trackers.start(0, "a", SETTINGS)
        services[0][1].finish = None
    context = context_of(tmp_path)
    (context.output_dir / "tensorboard").write_text("a file where the folder should be")
    with Trackers(TrackersConfig(use=("tensorboard",)), context) as trackers:
        trackers.start(0, "a", SETTINGS)
        assert not trackers.are_due(10)
    assert [text.partition(" is dropped")[0] for text in caplog.messages] == [
        "trackers: comet_ml",
        "trackers: tensorboard",
    ]


def test_what_an_earlier_attempt_kept_may_be_damaged(tmp_path, services, caplog):
    context = context_of(tmp_path)
    (context.output_dir / "trackers.json").write_text("{")
    with Trackers(TrackersConfig(use=("mlflow",)), context) as trackers:
        trackers.start(0, "a", SETTINGS)
    assert services[0][1].options["run_id"] is None
    assert json.loads((context.output_dir / "trackers.json").read_text())["runs"] == {
        "mlflow": "its own name"
    }


def test_accelerates_own_words_need_no_accelerator(tmp_path, caplog):
    caplog.set_level(logging.DEBUG, logger="accelerate.tracking")
    with Trackers(TrackersConfig(use=("tensorboard",)), context_of(tmp_path)) as trackers:
        trackers.start(0, "a", SETTINGS)
        trackers.log({"loss": 1.0}, 10)
    assert "Successfully logged to TensorBoard" in caplog.text
    from accelerate import PartialState

    assert PartialState._shared_state == {}


def test_a_missing_package_is_refused_by_name_with_what_installs_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "aim" else "x")
    with pytest.raises(StageConfigError) as refused:
        check_packages(TrackersConfig(use=("tensorboard", "aim")))
    assert f"`{sys.executable} -m pip install aim`" in str(refused.value)
    check_packages(TrackersConfig(use=("tensorboard",)))


def test_options_that_nobody_reads_and_doubles_are_refused():
    with pytest.raises(ValueError, match="options of wandb are given, which use does not name"):
        TrackersConfig(use=("tensorboard",), options={"wandb": {}})
    with pytest.raises(ValueError, match="name each tracker once"):
        TrackersConfig(use=("wandb", "wandb"))


def test_what_comes_before_they_are_open_is_told_when_they_are(tmp_path, services):
    with Trackers(TrackersConfig(use=("comet_ml",)), context_of(tmp_path)) as trackers:
        trackers.log({"look/loss": 0.5}, 3)
        trackers.start(5, "a", SETTINGS)
        trackers.log({"loss": 1.0}, 6)
    ((_, made),) = services
    looked, stepped = (3, {"look/loss": 0.5}), (6, {"loss": 1.0})
    assert made.told == ["start", SETTINGS, looked, stepped, "finish"]


def test_steps_are_a_metric_of_wandb_which_throws_away_what_is_behind_its_newest(
    tmp_path, services
):
    for first_step, steps in ((0, (1, 2, 3)), (1, (2, 3, 4))):
        with Trackers(TrackersConfig(use=("wandb",)), context_of(tmp_path)) as trackers:
            trackers.start(first_step, "a", SETTINGS)
            for step in steps:
                trackers.log({"loss": 1.0}, step)
    (_, first), (_, second) = services
    assert first.axes == second.axes == {"*": "num_steps_done"}
    told = [entry for entry in second.told if isinstance(entry, tuple)]
    assert told == [(None, {"loss": 1.0, "num_steps_done": step}) for step in (2, 3, 4)]


def test_trackers_that_are_never_opened_are_told_nothing(tmp_path, services):
    with Trackers(TrackersConfig(use=("wandb",)), context_of(tmp_path)) as trackers:
        trackers.log({"look/loss": 0.5}, 3)
    assert services == []
