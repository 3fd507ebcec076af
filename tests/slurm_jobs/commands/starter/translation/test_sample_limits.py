"""Limits of samples and images of another tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm_jobs.commands.starter.translation.translated_files import (
    QWEN,
    row_of,
    translated,
    written,
)

LLAMA = "model_name_or_path: a/b\n"
QWEN3 = "Qwen/Qwen3-VL-4B-Instruct"


@pytest.mark.parametrize(
    ("start", "model", "pixels"),
    [
        ("MAX_PIXELS=1003520 ", QWEN, 1003520),
        ("IMAGE_MAX_TOKEN_NUM=1024 ", QWEN, 1024 * 28**2),
        ("IMAGE_MAX_TOKEN_NUM=1024 ", QWEN3, 1024 * 32**2),
        ("MAX_PIXELS=100000000 ", QWEN, None),  # the processor's own limit is lower
        ("MAX_PIXELS=1000 ", QWEN3, 65_536),  # and here higher
        ("MAX_PIXELS=1003520 ", "llava-hf/llava-1.5-7b-hf", None),
        ("MAX_PIXELS=1003520 ", "some/model", None),
        ("", QWEN, None),
    ],
)
def test_images_are_as_large_as_with_the_other_tool(
    tmp_path: Path, start: str, model: str, pixels: int | None
) -> None:
    translation = translated(tmp_path / "a.sh", f"{start}swift sft --packing\n", model=model)
    assert translation.limits.image_pixels == pixels


@pytest.mark.parametrize(
    ("least", "written_least"), [(1000, None), (100_000, 100_000), (10**9, 768 * 768)]
)
def test_small_images_are_enlarged_within_the_other_limits(
    tmp_path: Path, least: int, written_least: int | None
) -> None:
    text = f"{LLAMA}image_min_pixels: {least}\n"
    config = written(translated(tmp_path / "a.yaml", text, model=QWEN3), "preprocess")
    assert config.get("image_pixels.min") == written_least


def test_the_limit_of_llama_factory_holds_without_a_key(tmp_path: Path) -> None:
    translation = translated(tmp_path / "a.yaml", LLAMA, model=QWEN)
    assert translation.limits.image_pixels == 768 * 768


@pytest.mark.parametrize(
    ("name", "text", "max_tokens", "too_long"),
    [
        ("a.yaml", LLAMA + "cutoff_len: 1024\n", 1024, "truncate_text"),
        ("a.yaml", LLAMA, 2048, "truncate_text"),
        ("a.yaml", "base_model: a/b\nsequence_len: 8192\n", 8192, None),
        ("a.sh", "swift sft --max_length 4096\n", 4096, None),
        (
            "a.sh",
            "swift sft --max_length 4096 --truncation_strategy right\n",
            4096,
            "truncate_text",
        ),
        ("a.sh", "swift sft --packing\n", 2048, None),
    ],
)
def test_long_samples_are_cut_only_where_the_tool_cuts_them(
    tmp_path: Path, name: str, text: str, max_tokens: int, too_long: str | None
) -> None:
    translation = translated(tmp_path / name, text)
    assert translation.limits.max_tokens == max_tokens
    assert written(translation, "preprocess").get("too_long") == too_long


def test_a_system_prompt_and_the_template_are_accounted_for(tmp_path: Path) -> None:
    script = "swift sft --system 'You answer briefly.' --template qwen3_vl\n"
    translation = translated(tmp_path / "a.sh", script)
    assert written(translation, "preprocess")["system_prompt"] == "You answer briefly."
    assert "in the model's folder" in row_of(translation, "template").text
    translation = translated(tmp_path / "a.sh", script, model="Qwen/Qwen3.5-4B")
    assert row_of(translation, "template").text.startswith("`chat_template: qwen3.5`")
