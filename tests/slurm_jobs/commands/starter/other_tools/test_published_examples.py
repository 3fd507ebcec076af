"""Examples that the other tools publish: every multimodal one is accounted for.

They are read from the folder that `SLURM_JOBS_TOOL_CHECKOUTS` names, which has a checkout of each
repository: `LLaMA-Factory`, `axolotl`, `ms-swift`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from tests.slurm_jobs.commands.starter.translation.translated_files import translation_of

VARIABLE = "SLURM_JOBS_TOOL_CHECKOUTS"
CHECKOUTS = Path(os.environ.get(VARIABLE, ""))
OTHER_TRAININGS = ("which is not supervised", "none of the keys by which a training is known")
"""Refusals: preferences, classifiers and rerankers; merging and exporting."""

WORDS = re.compile(r"VL|vit|internvl|llava|ovis|keye|minicpm-v|gemma-[34]|omni|OCR", re.IGNORECASE)
"""Names of models and options that only multimodal scripts of ms-swift have."""

pytestmark = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} names no folder with checkouts of other tools"
)


def llama_factory() -> list[Path]:
    return [
        path
        for path in CHECKOUTS.glob("LLaMA-Factory/examples/**/*.yaml")
        if path.parts[-2] not in {"accelerate", "inference", "merge_lora", "multi_tokens"}
    ]


def axolotl() -> list[Path]:
    return [
        path
        for path in CHECKOUTS.glob("axolotl/examples/**/*.y*ml")
        if "processor_type:" in path.read_text()
    ]


def ms_swift() -> list[Path]:
    return [
        path
        for path in CHECKOUTS.glob("ms-swift/examples/**/*.sh")
        if "swift sft" in path.read_text() and WORDS.search(path.read_text())
    ]


@pytest.mark.parametrize("find", [llama_factory, axolotl, ms_swift])
def test_no_key_of_a_published_example_is_unknown(find: Callable[[], list[Path]]) -> None:
    unknown, refusals, num_read = [], [], 0
    for path in find():
        try:
            translation = translation_of(path)
        except InputError as error:
            refusals.append(str(error))
            continue
        unknown += [f"{path}: {row.key}" for row in translation.rows() if row.fate == "unknown"]
        num_read += 1
    assert num_read > 5
    assert unknown == []
    others = [text for text in refusals if not any(words in text for words in OTHER_TRAININGS)]
    assert others == []
