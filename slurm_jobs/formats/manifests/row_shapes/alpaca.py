"""Alpaca's rows: an `instruction`, the `input` that it is about, and an answer.

LLaMA-Factory (`AlpacaDatasetConverter`) and ms-swift (`AlpacaPreprocessor`) join the two with a
line break, and take one alone if the other is empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurm_jobs.formats.manifests.keys import (
    BadRowError,
    Meaning,
    is_empty,
    kind_of,
    looks_like_picture,
    normal,
)
from slurm_jobs.formats.manifests.row_shapes.row_values import RowValues

KEYS: Mapping[str, Meaning] = {"input": "prompt"}


def rewrite(row: RowValues) -> None:
    """Join the instruction and its input.

    An input that names a picture is left where it is, so that the row is refused: the tools would
    learn the name as words.

    Raises:
        BadRowError: one of them is no text.
    """
    prompts = row.held.get("prompt", {})
    instruction_key = next((key for key in prompts if normal(key) == "instruction"), None)
    input_key = row.other_key("input")
    if instruction_key is None or input_key is None or looks_like_picture(row.others[input_key]):
        return
    words = {instruction_key: prompts[instruction_key], input_key: row.others.pop(input_key)}
    texts = []
    for key, text in words.items():
        if is_empty(text):
            continue
        if not isinstance(text, str):
            message = f"`{key}` is {kind_of(text)}, expected a string"
            raise BadRowError(message)
        if text.strip():
            texts.append(text)
    prompts[instruction_key] = "\n".join(texts)
