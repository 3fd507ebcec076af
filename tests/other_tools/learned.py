"""Tokens and learned answers of the samples that a small Qwen2-VL has of a data set."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.data.disk_format.sample_members import IGNORED_LABEL, TOKENS_SUFFIX
from slurm_jobs.cli import main
from slurm_jobs.commands.spec_reading.read_spec import load
from tests.other_tools.data_sets import ToolData
from tests.pipeline.kinds import make_processor
from tests.pipeline.models.tiny import write_tiny

_KIND = "qwen2_vl"
_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ item['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""In what it renders for pictures, the template that Qwen2-VL is published with."""
END = "<|im_end|>"
"""Token that ends an answer."""


def qwen_processor() -> Any:
    """transformers' processor."""
    processor = make_processor(_KIND)
    processor.tokenizer.chat_template = _TEMPLATE
    processor.chat_template = _TEMPLATE
    return processor


def write_model(folder: Path) -> Path:
    """The folder of the model, with its processor."""
    write_tiny(_KIND, folder)
    qwen_processor().save_pretrained(folder)
    return folder


def init_spec(data: ToolData, folder: Path, model: Path) -> Path:
    """Let `init` write a spec for the data into the working folder, and check it."""
    place = folder if data.data == "." else folder / data.data
    with pytest.raises(SystemExit, match=r"^0$"):
        main.main(["init", "--local", "--yes", "--data", str(place), "--model", str(model)])
    return Path("configs/finetune.yaml")


def preprocess_config(spec: Path) -> dict[str, Any]:
    """The config of the stage that makes the samples."""
    return dict(load(spec).spec.stages["preprocess"].config)


def learned_texts(tokens: np.ndarray, tokenizer: Any) -> list[str]:
    """The learned spans of a sample, as texts.

    Args:
        tokens: int [2, num_tokens], the token ids and the labels.
        tokenizer: transformers' tokenizer.
    """
    spans: list[list[int]] = [[]]
    for token, label in tokens.T.tolist():
        if label != IGNORED_LABEL:
            assert label == token
            spans[-1].append(token)
        elif spans[-1]:
            spans.append([])
    return [tokenizer.decode(span) for span in spans if span]


def with_ends(learned: Sequence[Sequence[str]]) -> list[list[str]]:
    """The learned spans that these answers are, each with the token that ends it."""
    return [[f"{answer}{END}" for answer in answers] for answers in learned]


def tokens_by_row(tars: Sequence[Path]) -> list[np.ndarray]:
    """Tokens and labels of all samples in parts or shards, int32 [2, num_tokens], by their row."""
    samples: dict[int, np.ndarray] = {}
    for path in tars:
        with tarfile.open(path) as tar:
            for member in tar:
                key, _, suffix = member.name.partition(".")
                content = tar.extractfile(member)
                if suffix == TOKENS_SUFFIX and content is not None:
                    samples[int(key)] = np.load(io.BytesIO(content.read()))
    return [samples[row] for row in sorted(samples)]
