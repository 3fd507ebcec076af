"""Batches of another tool: samples of a step, ranks, microbatches, rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm_jobs.commands.starter.translation.translated_files import (
    row_of,
    translated,
    written,
)

LLAMA = "model_name_or_path: a/b\n"
SWIFT = "swift sft --model a/b --gradient_accumulation_steps"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A file, the GPUs of a node here, and the step that they make."""

    text: str
    num_gpus: int = 4
    batch: int
    lanes: int = 8
    microbatches: int | None = None
    ranks: int | None = None
    """GPUs per node, if they are fewer than there are."""


def llama(per_gpu: int, accumulation: int) -> str:
    return (
        f"{LLAMA}per_device_train_batch_size: {per_gpu}\n"
        f"gradient_accumulation_steps: {accumulation}\n"
    )


TWO, FOUR = "NPROC_PER_NODE=2 ", "NPROC_PER_NODE=4 "
SEEN = "CUDA_VISIBLE_DEVICES=0,1 "
V1 = "model: a/b\ntrain_dataset: d\nglobal_batch_size: 64\nmicro_batch_size: 4\n"
STEPS = [
    Step(text=llama(1, 8), batch=32, microbatches=8),
    Step(text=llama(2, 4), num_gpus=0, batch=8, microbatches=4),
    Step(text=llama(3, 1), num_gpus=2, batch=6, lanes=2),
    Step(text="base_model: a/b\nmicro_batch_size: 1\n", batch=4, lanes=4),
    Step(text=V1, num_gpus=8, batch=64, microbatches=2),
    Step(text=f"{TWO}{SWIFT} 2\n", num_gpus=8, batch=4, lanes=4, ranks=4),
    Step(text=f"{TWO}NNODES=4 {SWIFT} 2\n", batch=16, microbatches=4),
    Step(text=f"{FOUR}swift sft --model a/b\n", batch=16, microbatches=4),
    Step(text=f"{SEEN}{SWIFT} 1\n", batch=1, lanes=1, ranks=1),
    Step(text=f"{SEEN}llamafactory-cli train --model_name_or_path a/b\n", batch=16),
]


@pytest.mark.parametrize("step", STEPS, ids=range(len(STEPS)))
def test_a_step_has_as_many_samples_as_with_the_other_tool(tmp_path: Path, step: Step) -> None:
    name = "a.yaml" if ": " in step.text else "a.sh"
    translation = translated(tmp_path / name, step.text, num_gpus=step.num_gpus)
    config = written(translation)
    assert (config["global_batch_size"], config["num_lanes"]) == (step.batch, step.lanes)
    assert config.get("num_microbatches") == step.microbatches
    changed = dict(translation.changes).get(("stages", "train", "resources", "gpus_per_node"))
    assert changed == step.ranks
    assert config.get("strategy") == ("single" if step.ranks == 1 else None)


def test_packed_rows_of_a_step_are_as_many_as_the_other_tools_rows(tmp_path: Path) -> None:
    text = LLAMA + "per_device_train_batch_size: 2\nneat_packing: true\ncutoff_len: 6144\n"
    config = written(translated(tmp_path / "a.yaml", text))
    # `rows_per_step` takes one row per lane, because there are fewer rows than samples.
    assert (config["global_batch_size"], config["num_lanes"]) == (8, 8)
    assert config["batching"] == {"kind": "packed", "max_tokens": 6144}


def test_without_packing_a_row_has_one_sample(tmp_path: Path) -> None:
    translation = translated(tmp_path / "a.yaml", "base_model: a/b\nsample_packing: false\n")
    assert written(translation)["batching"] == {"kind": "grouped"}
    assert row_of(translation, "sample_packing").fate == "translated"


@pytest.mark.parametrize(
    ("lines", "config"),
    [
        ("num_train_epochs: 3.0\n", {"num_epochs": 3}),
        ("num_train_epochs: 0.5\n", {"num_epochs": 0.5}),
        ("max_steps: 500\n", {"num_steps": 500}),
        ("max_steps: -1\n", {"num_epochs": 3}),
        ("num_train_epochs: 2\nmax_steps: 10\n", {"num_steps": 10}),
    ],
)
def test_steps_decide_the_length_or_else_epochs(
    tmp_path: Path, lines: str, config: dict[str, float]
) -> None:
    translation = translated(tmp_path / "a.yaml", LLAMA + lines)
    found = written(translation)
    assert {key: found[key] for key in ("num_steps", "num_epochs") if key in found} == config
    assert ("num_epochs" in translation.dropped) == ("num_steps" in config)
