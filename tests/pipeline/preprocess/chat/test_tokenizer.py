"""Tokenizers of processor folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.preprocess.chat.tokenizer import load_chat_tokenizer
from slurm_jobs.base.errors import StageConfigError


def test_tokenizer_that_gives_no_offsets_is_refused(tmp_path: Path) -> None:
    from transformers import ByT5Tokenizer

    ByT5Tokenizer().save_pretrained(tmp_path)
    with pytest.raises(StageConfigError, match=r"ByT5Tokenizer does not map .* `tokenizer\.json`"):
        load_chat_tokenizer(tmp_path, "<image>")
