"""Learned tokens of Alpaca's rows against LLaMA-Factory's own (0.9.5), where it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.manifest import read_manifest
from tests.pipeline.kinds import make_processor, write_kind

pytest.importorskip(
    "llamafactory.data",
    reason="LLaMA-Factory cannot be imported; install it, and set DISABLE_VERSION_CHECK=1",
    exc_type=ImportError,
)

CUP = {"instruction": "What is this?", "input": "", "output": "A red cup."}
ROWS = {
    "an instruction": CUP,
    "an input": {**CUP, "input": "Sure?"},
    "an input alone": {**CUP, "instruction": "", "input": "Sure?"},
    "a history": {**CUP, "history": [["Sure?", "A cup."], ["What?", "Sure."]]},
    "a system message": {**CUP, "system": "What is this?"},
    "a picture": {**CUP, "instruction": "<image>What is this?", "images": ["a.png"]},
    "a picture in the history": {
        **CUP,
        "history": [["<image>Sure?", "A cup."]],
        "images": ["a.png"],
    },
}


def write_processor(folder: Path) -> Path:
    """Write one whose template prints a line break after each turn, as Qwen's own does."""
    write_kind("qwen2_vl", folder)
    template = (folder / "chat_template.jinja").read_text()
    end = "{% endif %}\n{% endfor %}"
    assert template.count(end) == 1
    with_break = template.replace(end, "{% endif %}{{ '\\n' }}{% endfor %}")
    (folder / "chat_template.jinja").write_text(with_break)
    return folder


def encode_as_llama_factory(row: dict[str, Any], folder: Path) -> tuple[list[int], list[int]]:
    """Return token ids and labels, with the template of Qwen2-VL."""
    from llamafactory.data.converter import AlpacaDatasetConverter
    from llamafactory.data.parser import DatasetAttr
    from llamafactory.data.processor.supervised import SupervisedDatasetProcessor
    from llamafactory.data.template import TEMPLATES

    names = {name: name for name in ("history", "system", "images")}
    files = DatasetAttr("file", dataset_name="rows.json", **names)
    options = SimpleNamespace(
        mask_history=False, train_on_prompt=False, cutoff_len=10_000, media_dir=str(folder)
    )
    columns = {"history": [], "system": "", "images": [], **row}
    aligned = AlpacaDatasetConverter(files, options)(columns)
    theirs = make_processor("qwen2_vl")
    processor = SupervisedDatasetProcessor(TEMPLATES["qwen2_vl"], theirs.tokenizer, theirs, options)
    encoded = processor.preprocess_dataset({key: [value] for key, value in aligned.items()})
    return encoded["input_ids"][0], encoded["labels"][0]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_learned_tokens_are_those_of_llama_factory(tmp_path: Path, row: dict[str, Any]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "m.jsonl").write_text(json.dumps(row) + "\n")
    encoder = SampleEncoder(write_processor(tmp_path / "processor"), image_root=tmp_path)
    (ours,) = read_manifest(tmp_path / "m.jsonl")
    planned = encoder.images.plan(ours)
    sample = encoder.finish(encoder.expand(encoder.tokenise(ours), planned, ours), ours)
    input_ids, labels = encode_as_llama_factory(row, tmp_path)
    assert sample.input_ids.tolist() == input_ids
    # LLaMA-Factory also learns the line break after the end of an answer's turn.
    end = encoder.chat.tokenizer.convert_tokens_to_ids("<|im_end|>")
    for place in range(1, len(labels)):
        if labels[place - 1] == end:
            assert encoder.chat.tokenizer.decode(labels[place]) == "\n"
            labels[place] = -100
    assert sample.labels.tolist() == labels
