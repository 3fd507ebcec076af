"""Notes on training rows and positions that are shorter than samples may be."""

import json
from pathlib import Path

import pytest

from tests.slurm_jobs.spec.checks.stages.chained import PACKED, chain
from tests.slurm_jobs.spec.conftest import Notes


@pytest.mark.parametrize(
    "t",
    [
        "num_steps: 1, dataset: '${c.output_dir}', " + PACKED,
        "phases: [{name: a, num_steps: 1, batching: {kind: packed}}], batching: {max_tokens: 512}",
    ],
    ids=["a data set that is named", "a kind that a phase gives"],
)
def test_rows_shorter_than_the_samples_before_them_are_noted(notes: Notes, t: str) -> None:
    (note,) = notes(chain(t))
    assert "stages.t.config.batching.max_tokens: a row holds 512" in note


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llava", "text_config": {"model_type": "llama"}},
        {
            "model_type": "llava",
            "text_config": {
                "max_position_embeddings": 512,
                "rope_scaling": {"type": "linear", "factor": 4.0},
            },
        },
        {"model_type": "qwen2_vl", "max_position_embeddings": 512},
    ],
    ids=["none", "scaled", "of another place"],
)
def test_positions_that_the_config_of_a_folder_does_not_give_are_not_noted(
    notes: Notes, tmp_path: Path, config: dict[str, object]
) -> None:
    for name, values in {
        "vlm/config.json": config,
        "set/dataset.json": {"preprocess": {"max_tokens": 2048}},
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(json.dumps(values))
    model = "num_steps: 1, model: {type: hugging_face, path: vlm}"
    assert notes(chain(model)) == notes(chain(f"{model}, dataset: set", after="m")) == []
