"""From a config's levels to what the loader and the model must know of them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pipeline.data.levels import ClassReader, LevelRules
from slurm_jobs.common.stage_config.levels import LevelConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_MOST_ANSWERS = 65_536
"""Whose classes are remembered."""


def make_level_rules(
    levels: Sequence[LevelConfig], tokenizer: PreTrainedTokenizerFast | None
) -> LevelRules | None:
    """What every sample must have; None without levels."""
    if not levels:
        return None
    assert tokenizer is not None  # of every data set that is read
    return LevelRules(
        names=tuple(level.name for level in levels),
        readers={
            number: make_class_reader(
                level.classes, functools.partial(tokenizer.decode, skip_special_tokens=True)
            )
            for number, level in enumerate(levels)
            if level.head == "classes"
        },
    )


def make_class_reader(classes: Sequence[str], decode: Callable[[list[int]], str]) -> ClassReader:
    """Tells the class of an answer by its text; may be used from several threads.

    How a text becomes tokens depends on what stands before it, so tokens are turned back into text
    and not the other way round.
    """
    lock = threading.Lock()  # tokenizers are for one thread at a time
    numbers = {name: number for number, name in enumerate(classes)}

    @functools.lru_cache(maxsize=_MOST_ANSWERS)
    def read(answer: tuple[int, ...]) -> int:
        with lock:
            text = decode(list(answer)).strip()
        if text not in numbers:
            message = f"the answer {text!r} is none of the {len(numbers)} classes"
            raise ValueError(message)
        return numbers[text]

    return read
