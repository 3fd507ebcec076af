"""What is known of accelerate's files is what accelerate knows of them."""

from __future__ import annotations

import dataclasses
import os

import pytest
import torch
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.commands.launch import launch_command_parser

from pipeline.train.device.rank_device import RankDevice
from pipeline.train.strategies.accelerator import _file_variables, make_accelerator
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.shipped_files import shipped_path
from slurm_jobs.formats.accelerate_file import KNOWN_FSDP_KEYS, KNOWN_KEYS, AccelerateFile
from tests.pipeline.train.strategies.trainer import Alone

ALONE = AccelerateFile(
    distributed_type="NO",
    precision="bf16",
    wraps_layers=False,
    layer_classes=(),
    offloads=False,
    num_replicas=1,
)
HERE = RankDevice(device=torch.device("cpu"), precision="bf16", num_compute_threads=1)


def template(name):
    return str(shipped_path("templates", "accelerate", f"{name}.yaml"))


def test_the_keys_that_are_known_are_accelerates():
    fields = {field.name for field in dataclasses.fields(ClusterConfig)}
    assert fields | {"fp16", "dynamo_backend"} == KNOWN_KEYS
    options = vars(launch_command_parser().parse_args(["script"]))
    of_fsdp = {name for name in options if name.startswith("fsdp_")}
    # The last is read from the file, and is no option of the command.
    assert of_fsdp | {"fsdp_ignored_modules"} == KNOWN_FSDP_KEYS


@pytest.mark.parametrize(
    ("name", "kind", "precision"),
    [
        ("a100-fsdp2", "FSDP", "bf16"),
        ("v100-fsdp2", "FSDP", "fp16"),
        ("ddp", "MULTI_GPU", "bf16"),
    ],
)
def test_accelerates_own_loader_takes_each_template(name, kind, precision):
    loaded = load_config_from_file(template(name))
    assert (loaded.distributed_type.value, loaded.mixed_precision) == (kind, precision)


def test_variables_are_those_of_accelerate_launch():
    found = _file_variables(template("v100-fsdp2"), num_ranks=8)
    wanted = {
        "ACCELERATE_USE_FSDP": "true",
        "ACCELERATE_MIXED_PRECISION": "fp16",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_RESHARD_AFTER_FORWARD": "true",
        "FSDP_OFFLOAD_PARAMS": "false",
        "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
    }
    assert {name: found[name] for name in wanted} == wanted
    assert "ACCELERATE_USE_FSDP" not in _file_variables(template("ddp"), num_ranks=8)


def test_one_rank_without_a_process_group_needs_none_of_accelerate(tmp_path):
    file = tmp_path / "one.yaml"
    file.write_text("{distributed_type: 'NO', mixed_precision: bf16}")
    before = dict(os.environ)
    accelerator = make_accelerator(str(file), ALONE, HERE, Alone())
    assert accelerator.distributed_type.value == "NO"
    assert dict(os.environ) == before


def test_another_precision_than_the_ranks_is_an_error(tmp_path):
    file = tmp_path / "one.yaml"
    file.write_text("{distributed_type: 'NO', mixed_precision: fp16}")
    with pytest.raises(StageConfigError, match="mixed_precision is fp16, expected bf16"):
        make_accelerator(str(file), ALONE, HERE, Alone())


def test_an_error_of_accelerate_is_raised_with_the_file(tmp_path):
    file = tmp_path / "one.yaml"
    file.write_text("{distributed_type: 'NO', mixed_precision: bf61}")
    with pytest.raises(StageConfigError, match=r"one\.yaml: accelerate refuses it: .*bf61"):
        make_accelerator(str(file), ALONE, HERE, Alone())
