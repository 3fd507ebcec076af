"""Builds a tiny processor folder, images, manifests, task contexts and data sets for the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from PIL import Image

from slurm_jobs.formats.records.task_context import ParentStage, TaskContext
from tests import contexts

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}"
    "{% for item in message['content'] %}{{ item['text'] }}{% endfor %}{{ '<|end|>' }}"
    "{% endgeneration %}"
    "{% else %}"
    "{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<image>' }}{% else %}{{ item['text'] }}{% endif %}"
    "{% endfor %}{{ '<|end|>' }}"
    "{% endif %}{{ '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
IMAGE_SIZE = 32
NUM_IMAGE_TOKENS = 4
COLOURS = {"red": (255, 0, 0), "green": (0, 160, 0), "blue": (0, 0, 255)}


def save_byte_tokenizer(folder: Path, template: str | None, **tokens: str | list[str]) -> None:
    """A byte-level BPE without merges."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, **tokens)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)


def write_processor(folder: Path, *, template: str = CHAT_TEMPLATE) -> Path:
    """A byte-level BPE without merges, and SigLIP's preprocessing at 32 pixels."""
    save_byte_tokenizer(
        folder,
        template,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=["<image>", "<|start|>"],
    )
    images = {
        "image_processor_type": "SiglipImageProcessor",
        "size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "resample": 3,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    processor = {"processor_class": "LlavaProcessor", "image_token": "<image>", "patch_size": 16}
    (folder / "processor_config.json").write_text(json.dumps(processor))
    return folder


def write_image(path: Path, colour: tuple[int, ...] = (255, 0, 0), size: int = 40) -> Path:
    """A picture of one colour with a dark corner, so that its orientation shows."""
    pixels = np.full((size, size + 8, 3), colour, dtype=np.uint8)
    pixels[: size // 2, : size // 2] = 20
    Image.fromarray(pixels).save(path)
    return path


def write_csv_manifest(folder: Path, num_rows: int) -> Path:
    """A manifest of `num_rows` rows over three pictures, each with its own text."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, colour in COLOURS.items():
        write_image(folder / f"{name}.png", colour)
    names = list(COLOURS)
    lines = ["image_path,text"]
    lines += [f"{names[row % 3]}.png,{names[row % 3]} {'x' * (row % 7)}" for row in range(num_rows)]
    path = folder / "train.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def make_context(folder: Path, *, stage: str = "preprocess", **changes: Any) -> TaskContext:
    """A context of one task whose folders lie in `folder`."""
    return contexts.make_context(stage, folder, **{"output_dir": folder / "output", **changes})


def run_preprocess(folder: Path, config: dict[str, Any], num_slices: int = 1, **changes: Any):
    """All slices of `preprocess`, one after the other; the results and the output folder."""
    from pipeline.preprocess.stage import run

    results = []
    for slice_index in range(num_slices):
        context = make_context(
            folder, slice_index=slice_index, num_slices=num_slices, config=config, **changes
        )
        results.append(run(config, context))
    return results, folder / "output"


def run_consolidate(
    folder: Path,
    parts_dir: Path,
    num_slices: int = 1,
    *,
    deadline_unix_s: float | None = None,
    task: tuple[int, int] = (0, 1),
    **config: Any,
) -> tuple[dict[str, Any], Path]:
    """`consolidate` over the parts in `parts_dir`; its result and the data set's folder.

    `task` is which array task it is, and of how many.
    """
    from pipeline.consolidate.stage import run

    parent = ParentStage(
        stage="prep", run="preprocess", output_dir=parts_dir, num_slices=num_slices
    )
    context = make_context(
        folder,
        stage="consolidate",
        parents=(parent,),
        config=config,
        deadline_unix_s=deadline_unix_s,
        slice_index=task[0],
        num_slices=task[1],
    )
    return run(config, context), folder / "output"


def preprocess_rows(
    tmp_path: Path,
    processor_dir: Path,
    num_rows: int,
    num_slices: int,
    *,
    lines: Mapping[int, str] = MappingProxyType({}),
    **config: Any,
) -> tuple[list[dict[str, Any]], Path]:
    """Results and output of `preprocess`; some lines of the manifest are replaced."""
    manifest = write_csv_manifest(tmp_path / "source", num_rows)
    text = manifest.read_text().splitlines()
    for number, line in lines.items():
        text[number] = line
    manifest.write_text("\n".join(text) + "\n")
    config = {"manifest": str(manifest), "processor": str(processor_dir), "num_threads": 1} | config
    return run_preprocess(tmp_path / "prep", config, num_slices)


def preprocess_23(tmp_path: Path, processor_dir: Path, num_slices: int = 2) -> Path:
    """The output of `preprocess` over 23 good rows; the manifest lies in `tmp_path/source`."""
    return preprocess_rows(tmp_path, processor_dir, 23, num_slices)[1]


def preprocess_with_3_bad_rows_of_40(
    tmp_path: Path, processor_dir: Path, num_slices: int, **config: Any
) -> Path:
    """The output of `preprocess`; two images are missing, one row has no image's name."""
    lines = {4: "gone.png,words", 15: "gone.png,words", 34: ",words"}
    return preprocess_rows(tmp_path, processor_dir, 40, num_slices, lines=lines, **config)[1]
