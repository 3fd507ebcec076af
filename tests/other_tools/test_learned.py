"""Data sets as other tools document them: the answers are learned by the spec of `init`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.other_tools.data_sets import DATA_SETS, ToolData
from tests.other_tools.learned import (
    init_spec,
    learned_texts,
    preprocess_config,
    qwen_processor,
    tokens_by_row,
    with_ends,
    write_model,
)
from tests.pipeline.build import run_preprocess


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with its processor."""
    return write_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.mark.parametrize("write", DATA_SETS, ids=lambda write: write.__name__)
def test_the_answers_of_a_tools_rows_are_learned(
    write: Callable[[Path], ToolData],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    data = write(tmp_path / "data")
    config = preprocess_config(init_spec(data, tmp_path / "data", model))
    (result,), output = run_preprocess(tmp_path / "run", config)
    assert (result["num_samples"], result["num_rejected"]) == (len(data.learned), 0)
    tokenizer = qwen_processor().tokenizer
    samples = tokens_by_row(sorted((output / "parts").glob("*.tar")))
    learned = [learned_texts(tokens, tokenizer) for tokens in samples]
    assert learned == with_ends(data.learned)
