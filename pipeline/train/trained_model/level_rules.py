"""Level rules for loader and model, from a config's levels."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from pipeline.data.batches.learned_targets import ClassReader, LevelRules
from slurm_jobs.formats.configs.training_phases import LevelConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def make_level_rules(
    levels: Sequence[LevelConfig], tokenizer: PreTrainedTokenizerFast | None
) -> LevelRules | None:
    """Return the requirements for every sample; None without levels."""
    if not levels:
        return None
    assert tokenizer is not None  # of every data set that is read
    decode = cast(  # a list of texts only for a batch
        "Callable[[list[int]], str]", functools.partial(tokenizer.decode, skip_special_tokens=True)
    )
    return LevelRules(
        names=tuple(level.name for level in levels),
        readers={
            number: make_class_reader(level.classes, decode)
            for number, level in enumerate(levels)
            if level.head == "classes"
        },
    )


def make_class_reader(classes: Sequence[str], decode: Callable[[list[int]], str]) -> ClassReader:
    """Return a function from an answer's tokens to its class; may be used from several threads.

    The tokens of a text depend on the text before it, so tokens are decoded and texts compared.
    """
    lock = threading.Lock()  # only one thread at a time may use a tokenizer
    numbers = {name: number for number, name in enumerate(classes)}

    @functools.lru_cache(maxsize=65_536)
    def read(answer: tuple[int, ...]) -> int:
        with lock:
            text = decode(list(answer)).strip()
        if text not in numbers:
            message = f"the answer {text!r} is not one of the {len(numbers)} classes"
            raise ValueError(message)
        return numbers[text]

    return read
