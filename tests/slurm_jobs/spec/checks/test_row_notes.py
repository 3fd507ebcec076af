import json
from pathlib import Path

import pytest

from slurm_jobs.commands.read_spec import load

SPEC = """\
name: a
cluster: local
stages:
  m: {{shell: make}}
  p:
    run: preprocess
    after: m
    config: {{manifest: "${{m.output_dir}}/m.csv", processor: "${{m.output_dir}}/p", {p}}}
  c: {{run: consolidate, after: p}}
  t:
    run: train
    after: {after}
    config: {{device: cpu, strategy: single, {t}}}
"""


def notes(folder: Path, t: str, *, p: str = "max_tokens: 1024", after: str = "c") -> list[str]:
    file = folder / "spec.yaml"
    file.write_text(SPEC.format(p=p, t=t, after=after))
    return [f"{note.line}:{note.column}: {note.message}" for note in load(file).notes]


@pytest.mark.parametrize(
    ("t", "after"),
    [
        ("batching: {kind: packed, max_tokens: 1024, max_images: 8}", "c"),
        ("batching: {kind: packed}", "c"),
        ("batching: {kind: packed, max_tokens: 512}, dataset: '${m.output_dir}/d'", "[c, m]"),
        ("batching: {kind: packed, max_tokens: 512}, dataset: .", "m"),
    ],
)
def test_rows_that_are_long_enough_and_samples_of_elsewhere_are_not_noted(
    tmp_path: Path, t: str, after: str
) -> None:
    (tmp_path / "dataset.json").write_text("{}")
    assert notes(tmp_path, f"num_steps: 1, {t}", after=after) == []


def test_a_data_set_that_is_named_is_followed_to_its_samples(tmp_path: Path) -> None:
    rows = "num_steps: 1, dataset: '${c.output_dir}', batching: {kind: packed, max_tokens: 512}"
    assert len(notes(tmp_path, rows)) == 1


def test_a_limit_is_noted_where_it_is_said_though_a_phase_says_the_kind(tmp_path: Path) -> None:
    phases = (
        "phases: [{name: a, num_steps: 1, batching: {kind: packed}}], batching: {max_tokens: 512}"
    )
    (note,) = notes(tmp_path, phases)
    assert "stages.t.config.batching.max_tokens: a row holds 512" in note


def test_fewer_positions_than_a_sample_may_have_tokens_are_noted(tmp_path: Path) -> None:
    (line,) = notes(tmp_path, "num_steps: 1, model: {language: {max_positions: 10}}")
    assert line == (
        "13:93: stages.t.config.model.language.max_positions: the language model has 10 "
        "positions, and stage `p` lets a sample have 1,024 tokens: one that has more than 10 ends "
        "the training before its first step; preprocess with max_tokens: 10, or give the model "
        "more positions"
    )
    assert notes(tmp_path, "num_steps: 1, model: {language: {max_positions: 1024}}") == []
    (line,) = notes(tmp_path, "num_steps: 1", p="max_tokens: 5000")  # the default is 4,096
    assert "the language model has 4,096 positions" in line


@pytest.mark.parametrize(
    ("config", "is_noted"),
    [
        ({"model_type": "llava", "text_config": {"model_type": "llama"}}, False),
        (
            {
                "model_type": "llava",
                "text_config": {
                    "max_position_embeddings": 512,
                    "rope_scaling": {"type": "linear", "factor": 4.0},
                },
            },
            False,
        ),
        ({"model_type": "qwen2_vl", "max_position_embeddings": 512}, False),
    ],
)
def test_the_positions_of_a_folder_are_compared_where_its_config_gives_them(
    tmp_path: Path, config: dict[str, object], is_noted: bool
) -> None:
    (tmp_path / "vlm").mkdir()
    (tmp_path / "vlm" / "config.json").write_text(json.dumps(config))
    dataset = tmp_path / "set"
    dataset.mkdir()
    (dataset / "dataset.json").write_text(json.dumps({"preprocess": {"max_tokens": 2048}}))
    model = "model: {type: hugging_face, path: vlm}"
    for more, source in (("", "stage `p`"), (", dataset: set", "the data set ")):
        found = notes(tmp_path, f"num_steps: 1, {model}{more}", after="m" if more else "c")
        assert len(found) == is_noted
        if is_noted:
            assert "the language model has 512 positions (max_position_embeddings in " in found[0]
            assert f"{source}" in found[0]
