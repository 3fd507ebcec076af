"""Keys of other tools or places, answered with ours."""

import re
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.errors import Problem
from slurm_jobs.spec.builtin_configs import config_class
from slurm_jobs.spec.hints.foreign_keys import OWN_KEYS, OwnKey, foreign_key
from slurm_jobs.spec.model_keys import fields_of, is_model, known_keys, with_keys
from slurm_jobs.spec.validation import validate_values
from slurm_jobs.spec.yaml.reader import read_yaml
from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC as PREPROCESS
from tests.slurm_jobs.spec.checks.preprocess_spec import write_processor
from tests.slurm_jobs.spec.conftest import Check
from tests.slurm_jobs.spec.train_spec import SPEC, TRAIN

WORDS = [(word, own) for words, own in OWN_KEYS for word in words.split()]
NEEDED = {
    "train": {"num_steps": 1000, "adapters": {"rank": 8}},
    "preprocess": {"manifest": "rows.csv", "processor": "models/processor"},
}


def wrong_in(stage: str, example: str) -> list[Problem]:
    """What a stage's config refuses of an example, beside the keys that it cannot do without."""
    document = read_yaml(f"{{{example}}}", "f")
    assert document.problems == ()
    needed: dict[str, Any] = {**NEEDED[stage]}
    if {"num_epochs", "phases"} & document.value.keys():
        del needed["num_steps"]
    if "learn" in document.value:
        del needed["adapters"]
    _, problems = validate_values(config_class(stage), document, {**needed, **document.value}, ())
    return problems


def test_each_word_is_in_the_table_once_and_is_no_known_key() -> None:
    words = [word for word, _ in WORDS]
    assert len(words) == len(set(words))
    for *holder, word in (word.split(".") for word in words):
        assert word not in known_keys(TRAIN, tuple(holder))
    assert all(word == word.lower().replace("-", "_") for word in words)


@pytest.mark.parametrize(("word", "own"), WORDS)
def test_the_key_that_a_hint_names_is_there_and_takes_its_example(word: str, own: OwnKey) -> None:
    *holders, key = word.split(".")
    hint = foreign_key(TRAIN, {}, (*holders, key))
    assert hint is not None
    if not own.path:
        assert own.note.startswith("leave it out: ")
        return
    steps = own.path.split(".")
    assert steps[-1] in known_keys(config_class(own.stage), tuple(steps[:-1]))
    example = hint.example
    for holder in holders:
        example = f"{holder}: {{{example}}}"
    value = read_yaml(f"{{{example}}}", "f").value
    for step in steps:
        value = value[step]
    assert value is not None
    assert wrong_in(own.stage, example) == []
    for also in re.findall(r"`([^`]+: [^`]+)`", own.note):
        assert wrong_in(own.stage, also) == []


@pytest.mark.parametrize(
    ("key", "place", "example"),
    [
        ("lr", "optimizer.learning_rate", "optimizer: {learning_rate: 1e-4}"),
        ("report_to", "trackers.use", "trackers: {use: [tensorboard]}"),
        (
            *("eval_steps", "evaluate.every_steps"),
            "evaluate: {manifest: data/heldout.jsonl, every_steps: 500}",
        ),
        ("Gradient-Checkpointing", "activation_checkpointing", "activation_checkpointing: true"),
    ],
)
def test_a_key_of_another_tool_is_refused_with_our_key_and_an_example(
    check: Check, key: str, place: str, example: str
) -> None:
    (line,) = check(f"{SPEC}      {key}: 1\n")
    hint = f"here it is `stages.train.config.{place}`: write `{example}`"
    assert line.startswith(f"11:7: unknown key `{key}`; {hint}")
    assert "(allowed: device, dataset, model, " in line


def test_a_key_of_another_stage_is_refused_with_that_stage(check: Check) -> None:
    for key in ("max_length", "max_seq_length"):
        (line,) = check(f"{SPEC}      {key}: 4096\n")
        assert line.startswith(
            f"11:7: unknown key `{key}`; here it is `max_tokens` in the config of the stage that "
            "runs `preprocess`: write `max_tokens: 2048` there"
        )


@pytest.mark.parametrize(
    "mapping",
    [name for name, hint in fields_of(TRAIN).items() if is_model(with_keys(hint))],
)
def test_every_word_is_an_unknown_key_in_every_mapping(mapping: str) -> None:
    known = known_keys(TRAIN, (mapping,))
    words = [word for word, _ in WORDS if word not in known]
    keys = ", ".join(f"{word}: 1" for word in words)
    said = [problem.message for problem in wrong_in("train", f"{mapping}: {{{keys}}}")]
    for word in words:
        assert any(each.startswith(f"unknown key `{word}`") for each in said), word


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ("optimizer: {type: adamw}", "`stages.train.config.optimizer.kind`: write `kind: adamw`"),
        ("adapters: {r: 16}", "`stages.train.config.adapters.rank`: write `rank: 16`"),
        (
            "save_strategy: steps",
            "`stages.train.config.checkpoint.every_steps`: write `checkpoint: {every_steps: 500}`",
        ),
    ],
)
def test_a_key_at_the_wrong_level_is_refused_with_its_place(
    check: Check, config: str, hint: str
) -> None:
    (line,) = check(f"{SPEC}      {config}\n")
    assert f"; here it is {hint} (allowed: " in line


def test_words_of_training_mean_nothing_in_other_stages(check: Check) -> None:
    (line,) = check("name: a\ncluster: local\nstages:\n  s: {shell: x, lr: 1}\n")
    assert line.startswith("4:17: unknown key `lr` (allowed: ")


def test_in_a_matrix_the_hint_has_the_name_in_the_file_and_appears_once(check: Check) -> None:
    (line,) = check(f"{SPEC}      lr: 1\n    matrix: {{seed: [1, 2]}}\n")
    assert "here it is `stages.train.config.optimizer.learning_rate`" in line


@pytest.mark.parametrize(
    ("key", "place", "example"),
    [
        ("longest_edge", "image_pixels.max", "image_pixels: {max: 1003520}"),
        ("MIN_PIXELS", "image_pixels.min", "image_pixels: {min: 3136}"),
    ],
)
def test_a_limit_of_resized_images_is_not_taken_for_the_one_that_rejects(
    check: Check, tmp_path: Path, key: str, place: str, example: str
) -> None:
    (tmp_path / "rows.csv").write_text("image_path,text\na.png,red\n")
    write_processor(tmp_path)
    text = PREPROCESS.replace("{name}", "rows.csv")
    (line,) = check(f"{text}      {key}: 1003520\n")
    assert f"unknown key `{key}`; here it is `stages.p.config.{place}`: write `{example}`" in line
    if place.endswith("max"):
        assert "`max_pixels` of `preprocess` is another limit, which rejects image files" in line
    (below,) = check(f"{text}      image_pixels: {{max_pixels: 9, max: 1003520}}\n")
    assert "unknown key `max_pixels`; here it is `stages.p.config.image_pixels.max`" in below
