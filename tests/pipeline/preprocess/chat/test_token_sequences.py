"""Tokens of images put in their places, and texts cut around them."""

from __future__ import annotations

import numpy as np

from pipeline.preprocess.chat.token_sequences import (
    TokenSequence,
    cut_text,
    expand_images,
    mark_spans,
)

START, IMAGE, END, MARK = 1, 2, 3, 4
"""Tokens of an image; all others are words."""


def sequence(*input_ids: int, supervised: bool = True) -> TokenSequence:
    return TokenSequence(
        input_ids=np.asarray(input_ids, dtype=np.int32),
        supervised=np.full(len(input_ids), supervised),
        of_image=np.zeros(len(input_ids), dtype=bool),
    )


def ids(*values: int) -> np.ndarray:
    return np.asarray(values, dtype=np.int32)


def test_each_image_has_its_own_placeholder_and_nothing_of_it_is_learned() -> None:
    tokens = sequence(9, IMAGE, 8, IMAGE, IMAGE)
    placeholders = [ids(MARK, IMAGE, MARK), ids(IMAGE), ids(IMAGE, IMAGE)]
    expanded = expand_images(tokens, image_token_id=IMAGE, placeholders=placeholders)
    assert expanded.input_ids.tolist() == [9, MARK, IMAGE, MARK, 8, IMAGE, IMAGE, IMAGE]
    assert expanded.input_ids.dtype == np.int32
    assert expanded.supervised.tolist() == [True, *[False] * 3, True, *[False] * 3]
    assert (expanded.of_image == ~expanded.supervised).all()


def test_sequence_without_images_stays_as_it_is() -> None:
    expanded = expand_images(sequence(9, 8), image_token_id=IMAGE, placeholders=[])
    assert expanded.input_ids.tolist() == [9, 8]
    assert not expanded.of_image.any()


def test_wrapping_tokens_belong_to_an_image_only_where_they_touch_it() -> None:
    tokens = sequence(START, 9, START, IMAGE, END, END, IMAGE)
    expanded = expand_images(
        tokens, image_token_id=IMAGE, placeholders=[ids(IMAGE)] * 2, wrapping_ids=(START, END)
    )
    assert expanded.of_image.tolist() == [False, False, True, True, True, False, True]


def test_cut_removes_words_from_the_end_and_keeps_images_whole() -> None:
    tokens = expand_images(
        sequence(9, 9, 9, 9, START, IMAGE, END, 8, 8),
        image_token_id=IMAGE,
        placeholders=[ids(IMAGE, IMAGE)],
        wrapping_ids=(START, END),
    )
    cut = cut_text(tokens, max_tokens=6)
    assert cut.input_ids.tolist() == [9, 9, START, IMAGE, IMAGE, END]
    assert cut.labels.tolist() == [9, 9, *[-100] * 4]


def test_a_token_is_learned_if_any_of_it_is_in_a_span() -> None:
    offsets = np.array([[0, 2], [2, 4], [4, 5], [4, 5], [6, 6], [6, 8], [8, 8], [9, 10]])
    assert np.flatnonzero(mark_spans(offsets, [(3, 6)])).tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(mark_spans(offsets, [(0, 1), (6, 8)])).tolist() == [0, 5, 6]
    assert not mark_spans(offsets, [(3, 3)]).any()
    assert not mark_spans(np.zeros((0, 2), dtype=np.int64), [(0, 1)]).any()
