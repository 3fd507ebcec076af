"""Tokens that other tools learn of their own rows, by their own code: run by hand.

With a tool on `PYTHONPATH`, `python -m tests.other_tools.masking TOOL` prints for each of its data
sets whether tokens and labels are equal to ours. The tools are no dependencies of the tests: they
need hundreds of packages, some of them in older versions.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipeline.data.disk_format.sample_members import IGNORED_LABEL
from tests.other_tools.data_sets import DATA_SETS, ToolData
from tests.other_tools.learned import (
    init_spec,
    preprocess_config,
    qwen_processor,
    tokens_by_row,
    write_model,
)
from tests.pipeline.build import run_preprocess

_MOST_SHOWN = 4
_TYPE = "qwen2_vl"
"""Name of the model's type and template in LLaMA-Factory and ms-swift."""


def main(tool: str) -> None:
    """Compare all data sets of a tool, and print a line for each."""
    with tempfile.TemporaryDirectory() as place:
        model = write_model(Path(place) / "model")
        for write in DATA_SETS:
            folder = Path(place) / write.__name__
            data = write(folder)
            if data.tool == tool:
                print(f"{write.__name__:<24}  {_comparison(data, folder, model)}", flush=True)


def _comparison(data: ToolData, folder: Path, model: Path) -> str:
    os.chdir(folder)
    config = preprocess_config(init_spec(data, folder, model))
    _, output = run_preprocess(folder / "run", config)
    ours = tokens_by_row(sorted((output / "parts").glob("*.tar")))
    theirs = _ENCODERS[data.tool](data, folder, model)
    verdicts = [_verdict(own, other) for own, other in zip(ours, theirs, strict=True)]
    return "; ".join(dict.fromkeys(verdicts))


def _verdict(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Say how the tokens and labels of a sample differ, int32 [2, num_tokens] each."""
    decode = qwen_processor().tokenizer.decode
    if not np.array_equal(ours[0], theirs[0]):
        return f"other tokens: {decode(theirs[0])!r}, ours {decode(ours[0])!r}"
    is_ours, is_theirs = ours[1] != IGNORED_LABEL, theirs[1] != IGNORED_LABEL
    verdict = f"{len(ours[0])} tokens equal"
    for name, only in (("it", is_theirs & ~is_ours), ("here", is_ours & ~is_theirs)):
        texts = sorted(set(map(decode, ours[0][only].tolist())))
        if texts:
            shown = f"only {texts}" if len(texts) < _MOST_SHOWN else "words of the others"
            verdict += f", {name} also learns {only.sum()} more, {shown}"
    return verdict


def _rows(data: ToolData, folder: Path) -> list[dict[str, Any]]:
    text = (folder / (data.file or data.data)).read_text()
    return list(map(json.loads, text.splitlines()))


def _pair(tokens: Any, labels: Any) -> np.ndarray:
    return np.array([list(tokens), list(labels)], dtype=np.int32)


def _llama_factory(data: ToolData, folder: Path, model: Path) -> list[np.ndarray]:
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args
    from llamafactory.model.patcher import patch_processor

    model_args, data_args, training_args, _, _ = get_train_args(
        {
            "model_name_or_path": str(model),
            "dataset_dir": str(folder),
            "dataset": "mine",
            "template": _TYPE,
            "stage": "sft",
            "do_train": True,
            "finetuning_type": "full",
            "output_dir": str(folder / "out"),
            "report_to": "none",
            "use_cpu": True,
        }
    )
    processor = qwen_processor()
    patch_processor(processor, processor.tokenizer, model_args)
    template = get_template_and_fix_tokenizer(processor.tokenizer, data_args)
    found = get_dataset(
        template, model_args, data_args, training_args, "sft", processor.tokenizer, processor
    )
    return [_pair(row["input_ids"], row["labels"]) for row in found["train_dataset"]]


def _ms_swift(data: ToolData, folder: Path, model: Path) -> list[np.ndarray]:
    import torch
    from swift.dataset import load_dataset
    from swift.model import MODEL_MAPPING, ModelInfo
    from swift.template import get_template

    processor = qwen_processor()
    processor.model_meta = MODEL_MAPPING[_TYPE]
    processor.model_info = ModelInfo(
        model_type=_TYPE,
        model_dir=str(model),
        torch_dtype=torch.float32,
        max_model_len=4096,
        quant_method=None,
        quant_bits=None,
        task_type="causal_lm",
    )
    template = get_template(processor, template_type=_TYPE)
    template.set_mode("train")
    # It has the id of the published tokenizer, 151655, as a constant.
    template.image_token_id = processor.tokenizer.convert_tokens_to_ids(processor.image_token)
    rows, _ = load_dataset(str(folder / data.data), shuffle=False, strict=True)
    encoded = [template.encode(dict(row)) for row in rows]
    return [_pair(row["input_ids"], row["labels"]) for row in encoded]


def _trl(data: ToolData, folder: Path, _: Path) -> list[np.ndarray]:
    from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

    pairs = []
    for row in _rows(data, folder):
        collate = DataCollatorForVisionLanguageModeling(
            processor=qwen_processor(), completion_only_loss="completion" in row
        )
        images = [Image.open(folder / name) for name in row["images"]]
        batch = collate([{**row, "images": images}])
        pairs.append(_pair(batch["input_ids"][0].tolist(), batch["labels"][0].tolist()))
    return pairs


def _axolotl(data: ToolData, folder: Path, _: Path) -> list[np.ndarray]:
    from axolotl.processing_strategies import Qwen2VLProcessingStrategy
    from axolotl.utils.collators.mm_chat import MultiModalChatDataCollator

    processor = qwen_processor()
    strategy = Qwen2VLProcessingStrategy(
        processor=processor, chat_template=processor.tokenizer.chat_template
    )
    collate = MultiModalChatDataCollator(processor.tokenizer, strategy)
    pairs = []
    for row in _rows(data, folder):
        batch = collate([row])
        pairs.append(_pair(batch["input_ids"][0].tolist(), batch["labels"][0].tolist()))
    return pairs


_ENCODERS: Mapping[str, Callable[[ToolData, Path, Path], list[np.ndarray]]] = {
    "LLaMA-Factory": _llama_factory,
    "ms-swift": _ms_swift,
    "TRL": _trl,
    "axolotl": _axolotl,
}

if __name__ == "__main__":
    main(sys.argv[1])
