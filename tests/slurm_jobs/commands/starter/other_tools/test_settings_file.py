"""Reading of another tool's training, and which files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.starter.other_tools.settings_file import TOOLS, read_training


@pytest.mark.parametrize(
    ("name", "text", "tool"),
    [
        ("a.yaml", "model_name_or_path: a/b\nstage: sft\n", "LLaMA-Factory"),
        ("a.yml", "base_model: a/b\ndatasets: []\n", "axolotl"),
        ("a.yaml", "model: a/b\ntrain_dataset: d.yaml\n", "LLaMA-Factory v1"),
        ("a.yaml", "model: a/b\ntuner_type: lora\n", "ms-swift"),
        ("a.sh", "swift sft --model a/b\n", "ms-swift"),
        ("a.sh", "llamafactory-cli train --model_name_or_path a/b\n", "LLaMA-Factory"),
        ("run", "#!/bin/bash\nswift sft --model a/b\n", "ms-swift"),
    ],
)
def test_the_tool_is_known_by_its_keys_or_its_command(
    tmp_path: Path, name: str, text: str, tool: str
) -> None:
    (tmp_path / name).write_text(text)
    training = read_training(tmp_path / name)
    assert training.tool.name == tool
    assert training.text("model") == "a/b"


def test_a_script_adds_its_options_to_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/a.yaml").write_text("model_name_or_path: a/b\nlora_rank: 4\nseed: 1\n")
    script = tmp_path / "run" / "train.sh"
    script.parent.mkdir()
    script.write_text("CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train conf/a.yaml lora_rank=8\n")
    training = read_training(script)
    assert (training.count("lora_rank"), training.count("seed")) == (8, 1)
    assert training.words("visible_gpus") == ["0", "1"]


def test_nested_keys_have_dots_down_to_those_that_a_table_has_whole(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "base_model: a/b\nspecial_tokens: {pad_token: x}\nwhat: {inner: 1}\n"
        "fsdp_config: {offload_params: true}\n"
        "datasets: [{path: d, message_property_mappings: {role: from}}]\n"
    )
    keys = [each.key for each in read_training(tmp_path / "a.yaml").settings if not each.is_default]
    assert keys == [
        "base_model",
        "special_tokens",
        "what.inner",
        "fsdp_config.offload_params",
        "datasets.0.path",
        "datasets.0.message_property_mappings",
    ]


def test_a_default_gives_way_to_any_key_of_the_same_meaning(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("torchrun --nproc_per_node 4 swift/cli/sft.py --max_epochs 2\n")
    training = read_training(tmp_path / "a.sh")
    assert training.count("ranks") == 4
    assert training.number("epochs") == 2
    assert training.number("learning_rate") == pytest.approx(1e-4)
    (tmp_path / "a.sh").write_text("swift sft --tuner_type full --packing\n")
    assert read_training(tmp_path / "a.sh").number("learning_rate") == pytest.approx(1e-5)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "model_name_or_path: a/b\nstage: dpo\n", "stage is dpo, which is not superv"),
        ("a.yaml", "base_model: a/b\nrl: grpo\n", "rl is grpo, which is not supervised"),
        ("a.yaml", "base_model: a\npretraining_dataset: [{path: c4}]\n", "path is c4, which is"),
        ("a.sh", "swift rlhf --model a/b\n", "starts `ms-swift rlhf`, which is not supervised"),
        ("a.sh", "swift sft --task_type embedding\n", "task_type is embedding, which is not"),
        ("a.sh", "echo hello\n", "has no training that is known here: name a YAML file"),
        ("a.sh", "llamafactory-cli train gone.yaml\n", "names gone.yaml, which does not exist"),
        ("a.yaml", "name: mine\nstages: {}\n", "has none of the keys by which a training is"),
        ("a.yaml", "- a\n", "has no keys: name a YAML file"),
        ("a.yaml", "a: [\n", "is no valid YAML"),
    ],
)
def test_what_is_no_supervised_fine_tuning_is_refused(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_training(tmp_path / name)


def test_a_file_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.yaml: No such file"):
        read_training(tmp_path / "gone.yaml")


@pytest.mark.parametrize("value", ["much", "[1, 2]", "nan"])
def test_a_value_of_the_wrong_kind_is_named_with_its_key(tmp_path: Path, value: str) -> None:
    (tmp_path / "a.yaml").write_text(f"base_model: a/b\nlora_r: {value}\n")
    with pytest.raises(InputError, match=r"a\.yaml: lora_r is .*, expected a number"):
        read_training(tmp_path / "a.yaml").count("lora_rank")


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_defaults_and_refusals_are_keys_of_the_tools_table(tool: object) -> None:
    assert isinstance(tool, type(TOOLS[0]))
    for keys in (tool.defaults, tool.script_defaults, tool.defaults_of_full, tool.allowed):
        assert set(keys) <= set(tool.table)
    assert tool.known_by <= set(tool.table) | {"train_type"}
