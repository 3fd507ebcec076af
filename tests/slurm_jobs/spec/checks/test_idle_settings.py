from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.commands.read_spec import load

Notes = Callable[..., list[str]]

SPEC = """\
name: a
cluster: local
stages:
  m: {{shell: make}}
  p:
    run: preprocess
    after: m
    config: {{manifest: "${{m.output_dir}}/{manifest}", processor: "${{m.output_dir}}/p", {p}}}
  c: {{run: consolidate, after: p, config: {{{c}}}}}
  t:
    run: train
    after: [c, m]
    config: {{device: cpu, strategy: single, {t}}}
"""


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    """Notes on a spec of one chain as `LINE: message`."""

    def run(
        t: str = "num_steps: 1",
        *,
        p: str = "",
        c: str = "",
        manifest: str = "m.csv",
        overrides: tuple[str, ...] = (),
    ) -> list[str]:
        file = tmp_path / "spec.yaml"
        file.write_text(SPEC.format(manifest=manifest, p=p, c=c, t=t))
        found = load(file, overrides=overrides).notes
        return [f"{note.line}: {note.message}" for note in found]

    return run


def test_a_spec_of_defaults_has_no_notes(notes: Notes) -> None:
    assert notes() == []


@pytest.mark.parametrize(
    ("t", "keys"),
    [
        ("batching: {kind: grouped, max_tokens: 9000}", ["batching.max_tokens"]),
        (
            (
                "evaluate: {manifest: '${m.output_dir}/h.csv', every_steps: 2, num_samples: 5, "
                "num_loss_samples: 8, num_answers: 7}"
            ),
            ["evaluate.num_loss_samples", "evaluate.num_answers"],
        ),
        (
            "model: {type: hugging_face, name: a/b, language: {num_layers: 2}}",
            ["model.language.num_layers"],
        ),
    ],
)
def test_what_a_training_does_not_read_is_noted(notes: Notes, t: str, keys: list[str]) -> None:
    found = notes(f"num_steps: 1, {t}")
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
        "reader: webdataset, stream: {shuffle_buffer: 5}",
        "evaluate: {manifest: '${m.output_dir}/h.csv', num_samples: 5}",
        "evaluate: {manifest: '${m.output_dir}/h.csv', every_steps: 2, num_answers: 3}",
        "evaluate: {manifest: '${m.output_dir}/h.csv', every_steps: 2, num_samples: 64}",
        "precision: fp16, scaler: {max_skips: 3}",
        "staging: {max_gb: 3}",
        "profile: {steps: [0, 0], memory: true}",
        "trackers: {use: [tensorboard], every_steps: 3}",
        "model: {type: hugging_face, name: a/b, attention: eager}",
        "model: {vision: {num_layers: 2}, language: {num_layers: 2}}",
        "memory_share: 0.9, evaluate: {num_samples: null}",  # as by default
    ],
)
def test_what_is_read_is_not_noted(notes: Notes, t: str) -> None:
    assert notes(f"num_steps: 1, {t}") == []


def test_keys_that_one_phase_leaves_to_the_training_are_read(notes: Notes) -> None:
    phases = (
        "phases: [{name: a, num_steps: 1, batching: {kind: packed}},"
        " {name: b, num_steps: 1, optimizer: {beta2: 0.9}, batching: {kind: grouped}}]"
    )
    rest = "batching: {max_tokens: 9000}, optimizer: {weight_decay: 0.2, beta2: 0.8}"
    assert notes(f"{phases}, {rest}") == []


@pytest.mark.parametrize(
    ("p", "c", "manifest", "keys"),
    [
        ("image_quality: 80, image_format: jpeg", "", "m.csv", []),
        ("prompt: Say it", "", "m.jsonl", []),
        ("prompt: Say it", "", "m.csv", []),
        ("prompt: Say it", "", "m.parquet", []),
        ("", "shard_mb: 8", "m.csv", []),
    ],
)
def test_what_the_stages_before_do_not_read_is_noted(
    notes: Notes, p: str, c: str, manifest: str, keys: list[str]
) -> None:
    found = notes(p=p, c=c, manifest=manifest)
    assert [note.split(": ")[1] for note in found] == [f"stages.{key}" for key in keys]


def test_an_override_that_leaves_settings_idle_is_taken_and_noted(notes: Notes) -> None:
    packed = "num_steps: 1, batching: {kind: packed, max_tokens: 9000}"
    assert notes(packed) == []
    (note,) = notes(packed, overrides=("stages.t.config.batching.kind=shuffled",))
    assert "batching.max_tokens: `9000` has no effect" in note
