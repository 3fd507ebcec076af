"""The account of a translation: every key has a row with what became of it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
import yaml

from slurm_jobs.commands.starter.other_tools.settings_file import TOOLS
from slurm_jobs.commands.starter.other_tools.tool_table import Meaning, Tool, Without
from tests.slurm_jobs.commands.starter.translation.translated_files import row_of, translated

VALUES = {
    "method": "lora",
    "task": "sft",
    "model": "a/b",
    "data": "rows.jsonl",
    "template": "qwen2_vl",
    "schedule": "cosine",
    "optimizer": "adamw_torch",
    "bf16": True,
    "dtype": "bfloat16",
    "deepspeed": "zero3",
    "trackers": "wandb",
    "lora_targets": "all",
    "quantization_bits": 4,
    "quantization_kind": "nf4",
    "too_long": "right",
    "attention": "sdpa",
    "output_dir": "out/x",
    "warmup_share": 0.1,
    "min_lr_share": 0.1,
    "lora_dropout": 0.1,
    "beta1": 0.9,
    "beta2": 0.9,
}
NOT_READ = "it has no effect here"


def file_of(tool: Tool, values: dict[str, object]) -> str:
    known = {"LLaMA-Factory": "model_name_or_path", "axolotl": "base_model"}
    known |= {"LLaMA-Factory v1": "train_dataset", "ms-swift": "tuner_type"}
    return yaml.safe_dump({known[tool.name]: "lora", **values})


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_key_of_a_tools_table_has_a_reason_of_its_own(tool: Tool, tmp_path: Path) -> None:
    """A key alone: what it becomes may depend on others, but that it is accounted for may not."""
    for key, rule in tool.table.items():
        if key in tool.allowed or "." in key:
            continue
        value = "x" if isinstance(rule, Without) else VALUES.get(rule, 1)
        translation = translated(tmp_path / "a.yaml", file_of(tool, {key: value}))
        row = row_of(translation, key)
        assert row.fate in {"kept", "translated", "without"}, key
        assert row.text not in {"", NOT_READ}, key


FALSE_TOO = ("trust_remote_code", "tf32", "compile", "packing", "four_bits", "offload", "fp16")


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_switch_that_is_off_is_accounted_for_too(tool: Tool, tmp_path: Path) -> None:
    for key, rule in tool.table.items():
        if rule in FALSE_TOO and "." not in key:
            translation = translated(tmp_path / "a.yaml", file_of(tool, {key: False}))
            assert row_of(translation, key).text not in {"", NOT_READ}, key


def test_every_meaning_is_one_of_some_tools_keys() -> None:
    used = {rule for tool in TOOLS for rule in tool.table.values() if not isinstance(rule, Without)}
    assert used == set(get_args(Meaning))


def test_unknown_empty_and_computed_keys_are_rows_too(tmp_path: Path) -> None:
    script = "swift sft --model a/b --lora_ranc 4 --system '' --gradient_accumulation_steps $N\n"
    translation = translated(tmp_path / "a.sh", script)
    rows = {row.key: (row.fate, row.text) for row in translation.rows()}
    assert rows["lora_ranc"][0] == "unknown"
    assert rows["lora_ranc"][1].endswith("did you mean `lora_rank`?")
    assert rows["system"] == ("empty", "nothing is set")
    assert rows["gradient_accumulation_steps"][0] == "computed"


def test_a_secret_of_a_script_is_in_no_row(tmp_path: Path) -> None:
    script = "WANDB_API_KEY=abc123abc swift sft --model a/b --swanlab_token t0pt0p\n"
    texts = str(translated(tmp_path / "a.sh", script).rows())
    assert "abc123abc" not in texts
    assert "t0pt0p" not in texts
    assert "(hidden)" in texts


def test_defaults_of_the_tool_that_decide_something_are_rows(tmp_path: Path) -> None:
    translation = translated(tmp_path / "a.yaml", "model_name_or_path: a/b\n")
    rate = row_of(translation, "learning_rate")
    assert (rate.fate, rate.text) == ("default", "`optimizer.learning_rate: 5.0e-05`")
    assert row_of(translation, "lr_scheduler_type").fate == "default"
