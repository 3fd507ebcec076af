"""Accelerate's file as a training finds it: its precision, errors, and ranks that read another."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pipeline.train.accelerate_settings import asked_precision, read_accelerate_file
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.configs.training_parts import AccelerateConfig

ALONE = SimpleNamespace(rank=0, num_ranks=1, from_main=lambda text: text)
TWO = SimpleNamespace(rank=1, num_ranks=2, from_main=lambda text: text)


def config_of(path, **changes):
    values = {"num_steps": 1, "strategy": "accelerate", **changes}
    return TrainConfig(accelerate=AccelerateConfig(config=str(path)), **values)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text("{distributed_type: MULTI_GPU, mixed_precision: fp16}")
    return path


def test_the_file_says_the_precision_where_the_config_leaves_it_open(file):
    assert asked_precision(config_of(file)) == "fp16"
    assert asked_precision(config_of(file, precision="bf16")) == "bf16"
    assert asked_precision(TrainConfig(num_steps=1)) == "auto"
    file.write_text("distributed_type: MULTI_GPU")
    assert asked_precision(config_of(file)) == "fp32"


def test_a_file_that_has_come_to_contradict_the_stage_is_an_error(file):
    assert read_accelerate_file(config_of(file), TWO, num_nodes=1).precision == "fp16"
    with pytest.raises(StageConfigError, match=r"file\.yaml: distributed_type is MULTI_GPU, which"):
        read_accelerate_file(config_of(file), ALONE, num_nodes=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read: No such file"),
        ("a: [", "not valid YAML"),
        ("[1]", "no keys and values"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(file, text, words):
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    with pytest.raises(StageConfigError, match=rf"file\.yaml: .*{words}"):
        read_accelerate_file(config_of(file), TWO, num_nodes=1)


def test_a_rank_that_reads_another_file_than_rank_0_is_named(file):
    behind = SimpleNamespace(rank=1, num_ranks=2, from_main=lambda _: "distributed_type: FSDP")
    with pytest.raises(StageError, match="rank 1 reads other content than rank 0"):
        read_accelerate_file(config_of(file), behind, num_nodes=1)


def test_a_training_without_such_a_file_has_none():
    assert read_accelerate_file(TrainConfig(num_steps=1), TWO, num_nodes=1) is None
