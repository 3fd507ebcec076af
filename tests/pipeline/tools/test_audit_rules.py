"""Each rule on tokens made for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.tools.audit_rules import Rules, find

IMAGE, NUM_IMAGE_TOKENS = 7, 4
NONE = -100
IDS = [1, *[IMAGE] * NUM_IMAGE_TOKENS, 2, 3, 4]
LABELS = [NONE] * 6 + [3, 4]


@pytest.fixture
def rules(dataset_dir: Path) -> Rules:
    """Of a tokenizer of the ids 0 to 9 but 8."""
    from dataclasses import replace

    info = read_dataset_info(dataset_dir)
    info = replace(info, image_token_id=IMAGE, num_image_tokens=NUM_IMAGE_TOKENS)
    is_token = np.ones(10, dtype=bool)
    is_token[8] = False
    return Rules(info=info, is_token=is_token, images=None)  # type: ignore[arg-type]


def found(rules: Rules, ids: list[int], labels: list[int], num_images: int = 1) -> dict[str, str]:
    meta: dict[str, Any] = {"stored_sizes": [[[32, 32]]] * num_images}
    return dict(find(rules, np.array([ids, labels], dtype=np.int32), meta, num_images))


def test_a_valid_sample_has_no_problem(rules):
    assert found(rules, IDS, LABELS) == {}
    assert found(rules, [1, 2], [NONE, 2], num_images=0) == {}


@pytest.mark.parametrize(
    ("sample", "kind", "message"),
    [
        ((IDS, [NONE] * 8), "nothing_supervised", "no token is supervised: "),
        (
            (IDS, [NONE, NONE, IMAGE, IMAGE, NONE, NONE, 3, 4]),
            "image_token_supervised",
            "2 image tokens, the first at position 2, are supervised",
        ),
        ((IDS, [1, *LABELS[1:]]), "first_token_supervised", "supervises its first token"),
        (
            (IDS, [*LABELS[:-1], 9]),
            "label_differs",
            "the label at position 7 is neither -100 nor the token of the same place (label 9, ",
        ),
        ((IDS, [*LABELS[:-1], -1]), "label_differs", "the label at position 7 is neither -100"),
        (
            ([*IDS, 9], [*[NONE] * 5, 3, 4, 9, NONE]),
            "label_differs",
            "3 labels, the first at position 5, are neither -100",
        ),
        (
            ([8, *IDS[1:]], LABELS),
            "unknown_token",
            "the token id at position 0 is none of the tokenizer's 9 (8)",
        ),
        (([-5, *IDS[1:]], LABELS), "unknown_token", "the token id at position 0 is none"),
        (([10, *IDS[1:]], LABELS), "unknown_token", "the token id at position 0 is none"),
        (
            (IDS, LABELS, 2),
            "image_tokens",
            "4 image tokens, but 2 images are stored, which would have 8",
        ),
        (
            (IDS, LABELS, 0),
            "image_tokens",
            "4 image tokens, but no images are stored, which would have 0",
        ),
        (
            ([1, 2], [NONE, 2], 1),
            "image_tokens",
            "0 image tokens, but 1 image is stored, which would have 4",
        ),
    ],
)
def test_a_problem_is_reported_with_its_place(rules, sample, kind, message):
    wrong = found(rules, *sample)
    assert list(wrong) == [kind]
    assert wrong[kind].startswith(message)


def test_shifted_labels_are_reported_as_shifted(rules):
    wrong = found(rules, IDS, [*LABELS[1:], NONE])
    assert wrong["label_differs"].endswith(
        "those of the next token, but labels are not shifted here"
    )
    assert "shifted" not in found(rules, IDS, [*LABELS[:-1], 9])["label_differs"]


def test_more_images_in_the_index_than_sizes_is_reported(rules):
    tokens = np.array([IDS, LABELS], dtype=np.int32)
    wrong = dict(find(rules, tokens, {"stored_sizes": [[[32, 32]]]}, 3))
    assert wrong == {"num_images": "3 images are stored, but meta.json has sizes of 1"}
