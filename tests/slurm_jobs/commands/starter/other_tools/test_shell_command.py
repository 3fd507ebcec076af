"""The training command of a shell script, with its variables, launcher and options."""

from __future__ import annotations

import pytest

from slurm_jobs.commands.starter.other_tools.shell_command import training_commands


def test_options_keep_lists_numbers_truth_values_and_json() -> None:
    script = """
# swift sft --model commented/out
NPROC_PER_NODE=2 \\
swift sft \\
    --model a/b \\
    --dataset 'x/y:sub#20' \\
              z#10 \\
    --learning_rate 1e-4 \\
    --packing true \\
    --kwargs '{"use_reentrant": false}' \\
    --bf16
"""
    (command,) = training_commands(script)
    assert (command.tool, command.verb, command.config) == ("ms-swift", "sft", None)
    assert command.settings == {
        "NPROC_PER_NODE": 2,
        "model": "a/b",
        "dataset": ["x/y:sub#20", "z#10"],
        "learning_rate": "1e-4",
        "packing": True,
        "kwargs": {"use_reentrant": False},
        "bf16": True,
    }


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("$n", 4),
        ("${n}", 4),
        ("${other:-7}", 7),
        ("$(expr 16 / $n)", 4),
        ("$(expr 64 / $n / 2)", 8),
        ("$((n * 2))", "$((n * 2))"),
        ("$(($n * 2))", 8),
        ("$RANK", "$RANK"),
        ("$(nproc)", "$(nproc)"),
    ],
)
def test_variables_and_sums_of_the_script_itself_are_computed(value: str, read: object) -> None:
    script = f'n=4\nswift sft --gradient_accumulation_steps "{value}"\n'
    (command,) = training_commands(script)
    assert command.settings == {"gradient_accumulation_steps": read}


@pytest.mark.parametrize(
    "start",
    [
        "torchrun --nproc_per_node=4 swift/cli/sft.py",
        "export NPROC_PER_NODE=4\npython swift/cli/sft.py",
        "accelerate launch --nproc-per-node 4 swift/cli/sft.py",
    ],
)
def test_the_launcher_of_a_script_counts_the_ranks(start: str) -> None:
    (command,) = training_commands(f"{start} --model a/b | tee log")
    number = command.settings.get("nproc_per_node", command.settings.get("NPROC_PER_NODE"))
    assert number == 4
    assert command.settings["model"] == "a/b"
    assert "tee" not in str(command.settings)


def test_a_file_of_settings_and_what_overrides_it_are_found() -> None:
    (command,) = training_commands("llamafactory-cli train a/b.yaml learning_rate=1e-5 --bf16 true")
    assert (command.tool, command.config) == ("LLaMA-Factory", "a/b.yaml")
    assert command.settings == {"learning_rate": "1e-5", "bf16": True}


def test_all_training_commands_of_a_script_are_found_and_no_others() -> None:
    script = "pip install 'x<2'\nswift sft --model a\nswift infer --model b\nswift rlhf --model c\n"
    assert [command.verb for command in training_commands(script)] == ["sft", "infer", "rlhf"]
    assert list(training_commands("echo 'do not' stop # don't\n")) == []
