"""Notes on settings that have no effect."""

from pathlib import Path

import pytest

from tests.slurm_jobs.spec.checks.stages.chained import PACKED, chain
from tests.slurm_jobs.spec.conftest import Notes

EVALUATE = "evaluate: {manifest: '${m.output_dir}/h.csv'"


@pytest.mark.parametrize(
    ("t", "keys"),
    [
        ("batching: {kind: grouped, max_tokens: 9000}", ["batching.max_tokens"]),
        (
            f"{EVALUATE}, every_steps: 2, num_samples: 5, num_loss_samples: 8, num_answers: 7}}",
            ["evaluate.num_loss_samples", "evaluate.num_answers"],
        ),
        (
            "model: {type: hugging_face, name: a/b, language: {num_layers: 2}}",
            ["model.language.num_layers"],
        ),
    ],
)
def test_what_a_training_does_not_read_is_noted(notes: Notes, t: str, keys: list[str]) -> None:
    found = notes(chain(f"num_steps: 1, {t}"))
    assert len(found) == len(keys)
    for note, key in zip(found, keys, strict=True):
        assert f"{key}: " in note
        assert " has no effect: " in note


@pytest.mark.parametrize(
    "t",
    [
        "num_microbatches: auto, memory_share: 0.8",
        "batching: {kind: packed, strategy: bfd, max_tokens: 9000}",
        "batching: {kind: auto, max_images: 9}",
        "batching: {kind: packed, max_tokens: 2048, max_images: 8}",
        "batching: {kind: packed}",
        PACKED + ", dataset: '${m.output_dir}/d'",
        "reader: webdataset, stream: {shuffle_buffer: 5}",
        EVALUATE + ", num_samples: 5}",
        EVALUATE + ", every_steps: 2, num_answers: 3}",
        EVALUATE + ", every_steps: 2, num_samples: 64}",
        "precision: fp16, scaler: {max_skips: 3}",
        "staging: {max_gb: 3}",
        "profile: {steps: [0, 0], memory: true}",
        "trackers: {use: [tensorboard], every_steps: 3}",
        "model: {type: hugging_face, name: a/b, attention: eager}",
        "model: {vision: {num_layers: 2}, language: {num_layers: 2}}",
        "model: {language: {max_positions: 2048}}",
        "memory_share: 0.9, evaluate: {num_samples: null}",  # as by default
    ],
)
def test_what_is_read_and_long_enough_is_not_noted(notes: Notes, t: str) -> None:
    assert notes(chain(f"num_steps: 1, {t}")) == []


def test_samples_of_a_finished_data_set_are_not_those_of_the_spec(
    notes: Notes, tmp_path: Path
) -> None:
    (tmp_path / "dataset.json").write_text("{}")
    assert notes(chain(f"num_steps: 1, {PACKED}, dataset: .", after="m")) == []


def test_keys_that_one_phase_leaves_to_the_training_are_read(notes: Notes) -> None:
    phases = (
        "phases: [{name: a, num_steps: 1, batching: {kind: packed}},"
        " {name: b, num_steps: 1, optimizer: {beta2: 0.9}, batching: {kind: grouped}}]"
    )
    rest = "batching: {max_tokens: 9000}, optimizer: {weight_decay: 0.2, beta2: 0.8}"
    assert notes(chain(f"{phases}, {rest}")) == []


@pytest.mark.parametrize(
    ("p", "c", "manifest"),
    [
        ("image_quality: 80, image_format: jpeg", "", "m.csv"),
        ("prompt: Say it", "", "m.jsonl"),
        ("prompt: Say it", "", "m.csv"),
        ("prompt: Say it", "", "m.parquet"),
        ("", "shard_mb: 8", "m.csv"),
    ],
)
def test_what_the_stages_before_read_is_not_noted(
    notes: Notes, p: str, c: str, manifest: str
) -> None:
    assert notes(chain(p=p, c=c, manifest=manifest)) == []


def test_an_override_that_leaves_settings_idle_is_accepted_and_noted(notes: Notes) -> None:
    packed = chain("num_steps: 1, batching: {kind: packed, max_tokens: 9000}")
    assert notes(packed) == []
    (note,) = notes(packed, overrides=("stages.t.config.batching.kind=shuffled",))
    assert "batching.max_tokens: `9000` has no effect" in note
