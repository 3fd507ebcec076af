"""Names of the splits of a data set, as folders, files and columns write them."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Literal

from slurm_jobs.formats.manifests.keys import word_set

Split = Literal["train", "validation", "test"]

_WORDS_OF_SPLITS: Mapping[Split, str] = {
    "train": "train training trn",
    "validation": """val valid validate validation vld dev devel development eval evaluate
        evaluation holdout heldout""",
    "test": "test testing tst unseen",
}
SPLIT_WORDS: Mapping[str, Split] = {
    word: split for split, words in _WORDS_OF_SPLITS.items() for word in words.split()
}
_SHORT_WORDS: Mapping[str, Split] = {"tr": "train", "va": "validation", "ts": "test", "te": "test"}
"""Words that name a split only next to another split, as in `imagesTr` and `imagesTs`."""


_NEUTRAL = word_set(
    """set sets split splits subset part parts partition fold phase batch chunk shard data dataset
    datasets image images img imgs picture pictures photo photos pic pics sample samples file
    files folder dir crops cropped resized raw original jpg jpeg png of and full small mini tiny
    large big all clean final new old copy hr lr std standard public private version seed"""
)
"""Words that leave the meaning of a split's word next to them: `test_images`, `val_split`."""

_TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_SPLIT_WORD = "|".join(sorted(SPLIT_WORDS, key=len, reverse=True))
_COMPOUND = re.compile(
    rf"(?:mini|sub)?({_SPLIT_WORD})({_SPLIT_WORD})?(?:sets?|data|dataset|images?|imgs?|split|files)?"
)
"""`trainval`, `testset`, `minival`."""

SPLIT_KEYS = word_set(
    """split splits subset set partition usage phase fold data_split dataset_split split_name
    set_name set_type data_set_type"""
)
"""Columns whose values may name the split of a row."""


@functools.lru_cache(maxsize=65_536)
def split_of(name: str) -> Split | None:
    """Return the split that a name stands for: `Train`, `val2017`, `test-A`, `01_train_images`.

    None for a name with another meaning (`test_tube`), or with both train and test.
    """
    split, rest = split_and_rest(name)
    return None if rest else split


@functools.lru_cache(maxsize=65_536)
def split_and_rest(name: str, *, is_short: bool = False) -> tuple[Split | None, tuple[str, ...]]:
    """Return the split in a name without suffix, and its words with another meaning.

    With `is_short`, `tr`, `va`, `ts` and `te` are splits, too.
    """
    tokens = [token.lower() for token in _TOKEN.findall(name)]
    text = re.sub(r"\b(hold|held) out\b", "holdout", " ".join(tokens))
    splits: list[Split] = []
    rest = []
    for token in text.split():
        match = _COMPOUND.fullmatch(token)
        if match:
            splits += [SPLIT_WORDS[word] for word in match.groups() if word]
        elif is_short and token in _SHORT_WORDS:
            splits.append(_SHORT_WORDS[token])
        elif len(token) > 1 and not token.isdigit() and token not in _NEUTRAL:
            rest.append(token)
    kinds = set(splits)
    if kinds == {"train", "validation"}:  # `trainval` is used for training before a test
        return "train", tuple(rest)
    if "train" in kinds and len(kinds) > 1:
        return None, tuple(rest)
    if kinds == {"validation", "test"}:
        return "test", tuple(rest)
    return (splits[0] if splits else None), tuple(rest)


def split_of_column(key: str, value: Any) -> Split | None:
    """Return the split of a row according to one column; None if it names none.

    Args:
        key: name of the column, in lower case with `_` between words.
        value: `train`, `Test`; for `is_test` and its siblings, yes or no.
    """
    if key in SPLIT_KEYS:
        is_name = isinstance(value, str) and len(value) <= _MAX_SPLIT_CHARS
        return split_and_rest(value)[0] if is_name else None
    split = split_of(key[3:]) if key.startswith("is_") else None
    answer = str(value).strip().lower()
    if split is None or answer not in (*_TRUE, *_FALSE):
        return None
    if split == "train":
        return "train" if answer in _TRUE else "test"
    return split if answer in _TRUE else "train"


_MAX_SPLIT_CHARS = 60
"""Longest value, in characters, that may be the name of a split."""
_TRUE, _FALSE = ("true", "1", "yes", "1.0"), ("false", "0", "no", "0.0")
