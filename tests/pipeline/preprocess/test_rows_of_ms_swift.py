"""Messages of ms-swift's rows against ms-swift's own (4.6), where it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.preprocess.manifest import read_manifest

preprocessor = pytest.importorskip(
    "swift.dataset.preprocessor.core",
    reason="ms-swift is not installed; `pip install ms-swift`",
    exc_type=ImportError,
)

PAIRS = [{"human": "Hi.", "assistant": "Hello."}, {"human": "Why?", "assistant": "So."}]
ROWS = {
    "Alpaca": {"instruction": "Add.", "input": "1 + 1", "output": "2"},
    "Alpaca without an input": {"instruction": "Add 1 + 1.", "input": "", "output": "2"},
    "query and response": {"query": "Why?", "response": "So."},
    "a history": {
        "query": "Why?",
        "response": "So.",
        "history": [["Hi.", "Hello."]],
        "system": "Be brief.",
    },
    "a history of Alpaca": {
        "instruction": "Add.",
        "input": "1 + 1",
        "output": "2",
        "history": [["Hi.", "Hello."]],
    },
    "pairs": {"conversation": PAIRS, "system": "Be brief."},
    "turns in conversation": {
        "conversation": [{"from": "human", "value": "Hi."}, {"from": "gpt", "value": "Hello."}]
    },
    "a problem and its solution": {"problem": "Find x.", "solution": "3"},
    "a problem and its answer": {"problem": "Find x.", "answer": "3"},
    "several answers": {"question": "Find x.", "answers": ["3", "three"]},
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_messages_are_those_of_ms_swift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "m.jsonl").write_text(json.dumps(row) + "\n")
    (ours,) = read_manifest(tmp_path / "m.jsonl")
    data = datasets.Dataset.from_list([row])
    (theirs,) = preprocessor.AutoPreprocessor()(data, strict=True, enable_auto_mapping=True)
    messages = [{"role": message.role, "content": message.text} for message in ours.messages]
    assert messages == theirs["messages"]
    assert all(message.is_learned for message in ours.messages)
