"""Remedies for one value where settings hold keys."""

import re
import typing
from typing import Any

import pytest

from slurm_jobs.spec.builtin_configs import config_class
from slurm_jobs.spec.hints.mapping_remedies import FORMS, mapping_remedy
from slurm_jobs.spec.model import Resources, RunSpec, Stage
from slurm_jobs.spec.model_keys import fields_of, is_model, with_keys
from slurm_jobs.spec.validation import validate_values
from slurm_jobs.spec.yaml.document import KeyPath
from slurm_jobs.spec.yaml.reader import read_yaml
from tests.slurm_jobs.spec.conftest import Check
from tests.slurm_jobs.spec.train_spec import SPEC, TRAIN

OF_A_STAGE = ("array", "on_resume", "resources")
LEFT_OUT = "; for none leave it out"


def models_below(target: Any) -> dict[KeyPath, str]:
    """The settings of a model that hold keys, or lists of such, and the models' names."""
    found: dict[KeyPath, str] = {}
    for key, hint in fields_of(target).items():
        bare = with_keys(hint)
        is_list = typing.get_origin(bare) in {list, tuple}
        model = with_keys(typing.get_args(bare)[0]) if is_list else bare
        if is_model(model):
            found[key,] = model.__name__
            below = {} if is_list else models_below(model)
            found |= {(key, *path): name for path, name in below.items()}
    return found


def refused(place: KeyPath, value: Any) -> list[str]:
    """What a training refuses of a value at a place, beside what that place cannot do without."""
    needed: dict[str, Any] = {
        "num_steps": 1000,
        **({"strategy": "accelerate"} if place[0] == "accelerate" else {}),
        **({"adapters": {"rank": 8}} if place[0] == "quantize" else {}),
    }
    if place[0] == "phases":
        del needed["num_steps"]
    for step in reversed(place):
        value = {step: value}
    document = read_yaml("a", "f")
    return [p.message for p in validate_values(TRAIN, document, {**needed, **value}, ())[1]]


def test_every_setting_of_a_training_that_holds_keys_has_a_form() -> None:
    preprocess = models_below(config_class("preprocess"))
    del preprocess["processor",]  # a folder's name stands there as well
    names = {
        *models_below(TRAIN).values(),
        *models_below(Stage).values(),
        *preprocess.values(),
    }
    assert names == set(FORMS)


@pytest.mark.parametrize(
    "value", [True, False, None, 3, 1e-4, "nonsense", "text", "auto", "off", ["a"]]
)
@pytest.mark.parametrize("place", models_below(TRAIN))
def test_the_form_that_is_shown_is_taken(place: KeyPath, value: Any) -> None:
    remedy = mapping_remedy(TRAIN, place, value)
    if remedy == LEFT_OUT:
        assert value is False
        return
    shown = re.fullmatch(r"; write (?:for example )?`(.+)`(?: for none)?", remedy)
    assert shown is not None
    document = read_yaml(f"{{{shown[1]}}}", "f")
    assert document.problems == ()
    assert list(document.value) == [place[-1]]
    assert refused(place, document.value[place[-1]]) == []


@pytest.mark.parametrize("key", OF_A_STAGE)
def test_the_form_of_a_stages_own_settings_is_taken(key: str) -> None:
    shown = re.search("`(.+)`", mapping_remedy(Stage, (key,), "x"))
    assert shown is not None
    values = {"shell": "x", **read_yaml(f"{{{shown[1]}}}", "f").value}
    assert validate_values(Stage, read_yaml("a", "f"), values, ())[1] == []


@pytest.mark.parametrize(
    ("config", "place", "found", "remedy"),
    [
        ("compile: true", "compile", "`true`", "write `compile: {}`"),
        ("quantize: nf4", "quantize", "the text `nf4`", "write `quantize: {kind: nf4}`"),
        (
            *("trackers: tensorboard", "trackers", "the text `tensorboard`"),
            "write `trackers: {use: [tensorboard]}`",
        ),
        ("adapters: 8", "adapters", "`8`", "write `adapters: {rank: 8}`"),
        ("batching: packed", "batching", "the text `packed`", "write `batching: {kind: packed}`"),
        ("evaluate: false", "evaluate", "`false`", "for none leave it out"),
        (
            *("model: models/qwen", "model", "the text `models/qwen`"),
            "write `model: {type: hugging_face, path: models/qwen}`",
        ),
    ],
)
def test_one_value_in_place_of_keys_is_refused_with_the_form(
    check: Check, config: str, place: str, found: str, remedy: str
) -> None:
    (line,) = check(f"{SPEC}      {config}\n")
    start = f"stages.train.config.{place}: expected keys and values, found {found}; {remedy}"
    assert line.partition(": ")[2].startswith(start)


def test_what_has_no_name_has_no_form() -> None:
    assert mapping_remedy(Resources, (), None) == ""
    assert mapping_remedy(RunSpec, ("stages", "s", "config"), 3) == ""
