"""Translations of files of other tools that tests write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm_jobs.commands.starter import model_inspection
from slurm_jobs.commands.starter.other_tools.account import AccountRow
from slurm_jobs.commands.starter.other_tools.settings_file import read_training
from slurm_jobs.commands.starter.other_tools.start_point import start_point
from slurm_jobs.commands.starter.sample_lengths import LengthLimits
from slurm_jobs.commands.starter.starter_facts import Data, JobPlace, PartitionRoom
from slurm_jobs.commands.starter.translation.translated_spec import translate
from slurm_jobs.commands.starter.translation.translation import StartFacts, Translation

QWEN = "Qwen/Qwen2.5-VL-7B-Instruct"
_CPU = PartitionRoom(partition=None, num_nodes=1, cpus=64, mem_gb=500)


def place(num_gpus: int) -> JobPlace:
    """A node with GPUs, or without."""
    gpu = replace(_CPU, gpu_type="a100", gpus=num_gpus) if num_gpus else None
    return JobPlace(name="here", is_slurm=True, cpu=_CPU, gpu=gpu)


def translated(
    file: Path,
    text: str,
    *,
    model: str = QWEN,
    num_gpus: int = 4,
    num_rows: int | None = 1000,
    evaluation: str | None = None,
) -> Translation:
    """The translation of a file with this text."""
    file.write_text(text)
    return translation_of(
        file, model=model, num_gpus=num_gpus, num_rows=num_rows, evaluation=evaluation
    )


def translation_of(
    file: Path,
    *,
    model: str = QWEN,
    num_gpus: int = 4,
    num_rows: int | None = 1000,
    evaluation: str | None = None,
) -> Translation:
    """The translation of a file, with other data."""
    training = read_training(file)
    facts = StartFacts(
        place=place(num_gpus),
        data=Data(manifest="m.jsonl", num_rows=num_rows, evaluation=evaluation),
        model=model_inspection.inspect_weights(model, as_named=model),
        kind=model,
        rules=model_inspection.image_rules(model),
        name="mine",
    )
    return translate(start_point(training, has_data=True), facts, LengthLimits())


def written(translation: Translation, stage: str = "train") -> dict[str, Any]:
    """The keys of a stage's config that a translation sets, with dots."""
    return {
        ".".join(map(str, path[3:])): value
        for path, value in translation.changes
        if path[:3] == ("stages", stage, "config")
    }


def row_of(translation: Translation, key: str) -> AccountRow:
    """The row of a key."""
    return next(row for row in translation.rows() if row.key == key)
