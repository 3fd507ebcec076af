"""Tokens that other tools make and learn of their own rows, against ours, where they are installed.

They need hundreds of packages, some of them in older versions, so the project does not depend on
them: install one with `pip install --no-deps --target FOLDER`, and set PYTHONPATH.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.data.disk_format.sample_members import IGNORED_LABEL
from tests.other_tools import data_sets
from tests.other_tools.data_sets import ToolData
from tests.other_tools.learned import (
    init_spec,
    preprocess_config,
    qwen_processor,
    tokens_by_row,
    write_model,
)
from tests.pipeline.build import run_preprocess

_TYPE = "qwen2_vl"
"""Name of the model's type and template in LLaMA-Factory and ms-swift."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with its processor."""
    return write_model(tmp_path_factory.mktemp("model") / "tiny")


def _rows(data: ToolData, folder: Path) -> list[dict[str, Any]]:
    text = (folder / (data.file or data.data)).read_text()
    return list(map(json.loads, text.splitlines()))


def _pair(tokens: Any, labels: Any) -> np.ndarray:
    return np.array([list(tokens), list(labels)], dtype=np.int32)


def _llama_factory(data: ToolData, folder: Path, model: Path) -> list[np.ndarray]:
    pytest.importorskip(
        "llamafactory.model",
        reason="LLaMA-Factory cannot be imported; install it, and set DISABLE_VERSION_CHECK=1",
        exc_type=ImportError,
    )
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
    pytest.importorskip(
        "swift.template",
        reason="ms-swift is not installed; `pip install ms-swift`",
        exc_type=ImportError,
    )
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
    pytest.importorskip(
        "trl.trainer.sft_trainer",
        reason="TRL is not installed; `pip install trl`",
        exc_type=ImportError,
    )
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
    pytest.importorskip(
        "axolotl.utils.collators.mm_chat",
        reason="axolotl is not installed; `pip install axolotl`",
        exc_type=ImportError,
    )
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


@pytest.mark.parametrize(
    ("write", "encode", "extra"),
    [
        (data_sets.llama_factory_sharegpt, _llama_factory, {"\n"}),
        (data_sets.llama_factory_messages, _llama_factory, {"\n"}),
        (data_sets.llama_factory_alpaca, _llama_factory, {"\n"}),
        (data_sets.ms_swift_messages, _ms_swift, {"\n"}),
        (data_sets.ms_swift_query, _ms_swift, {"\n"}),
        (data_sets.ms_swift_conversation, _ms_swift, {"\n"}),
        (data_sets.trl_prompt_completion, _trl, {"\n"}),
        (data_sets.trl_messages, _trl, None),
        (data_sets.axolotl_messages, _axolotl, set()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_tool_makes_the_same_tokens_and_learns_the_same_answers(
    *,
    write: Callable[[Path], ToolData],
    encode: Callable[[ToolData, Path, Path], list[np.ndarray]],
    extra: set[str] | None,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most tools also learn the line break after an answer's end; `extra` None: every token."""
    folder = tmp_path / "data"
    data = write(folder)
    monkeypatch.chdir(folder)  # from which ms-swift reads the paths of pictures
    theirs = encode(data, folder, model)
    _, output = run_preprocess(tmp_path / "run", preprocess_config(init_spec(data, folder, model)))
    ours = tokens_by_row(sorted((output / "parts").glob("*.tar")))
    decode = qwen_processor().tokenizer.decode
    for (ids, labels), (their_ids, their_labels) in zip(ours, theirs, strict=True):
        assert decode(their_ids) == decode(ids)
        assert np.array_equal(their_ids, ids)
        is_ours, is_theirs = labels != IGNORED_LABEL, their_labels != IGNORED_LABEL
        assert not (is_ours & ~is_theirs).any()
        if extra is None:
            assert is_theirs.all()
        else:
            assert set(map(decode, ids[is_theirs & ~is_ours].tolist())) == extra
