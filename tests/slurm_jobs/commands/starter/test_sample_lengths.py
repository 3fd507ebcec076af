"""The limits that `init` writes let the rows of a data set fit."""

from __future__ import annotations

import pytest

from slurm_jobs.commands.starter.model_inspection import image_rules
from slurm_jobs.commands.starter.sample_lengths import choose_lengths, row_length
from slurm_jobs.formats.manifests.row_sizes import RowSize

PHOTO = (4032, 3024)
NAMES = (
    *("Qwen/Qwen2.5-VL-3B-Instruct", "Qwen/Qwen2-VL-2B-Instruct", "Qwen/Qwen3-VL-2B-Instruct"),
    *("HuggingFaceTB/SmolVLM-256M-Instruct", "HuggingFaceM4/Idefics3-8B-Llama3"),
    *("llava-hf/llava-v1.6-mistral-7b-hf", "llava-hf/llava-1.5-7b-hf"),
    *("google/gemma-3-4b-it", "google/medgemma-4b-it", "google/gemma-4-E2B-it"),
    *("OpenGVLab/InternVL3_5-8B-HF", "llava-hf/llava-onevision-qwen2-7b-ov-hf"),
)
NATIVE = NAMES[:3]
MOST_TOKENS = {NAMES[-2]: 5120, NAMES[-1]: 9216}
"""InternVL makes 13 tiles of a photo, LLaVA-OneVision the tokens of about 10."""


def rows(*sizes: tuple[int, int], text: int = 40, num_images: int = 1) -> list[RowSize]:
    return [RowSize(images=(size,) * num_images, num_text_bytes=text) for size in sizes]


def fits(chosen, row: RowSize, name: str) -> bool:
    rules = image_rules(name)
    if chosen.image_pixels is not None:
        rules = type(rules)(
            **{k: getattr(rules, k) for k in rules.__slots__} | {"max_pixels": chosen.image_pixels}
        )
    return row_length(row, rules) <= chosen.max_tokens


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_images", [1, 2, 5, 12])
@pytest.mark.parametrize("text", [10, 3_000, 9_000])
def test_every_measured_row_fits(name: str, num_images: int, text: int) -> None:
    seen = rows(PHOTO, (3024, 4032), (640, 480), (60, 40), text=text, num_images=num_images)
    chosen = choose_lengths(seen, image_rules(name))
    assert all(fits(chosen, row, name) for row in seen)
    assert (chosen.image_pixels is not None) <= (name in NATIVE)


@pytest.mark.parametrize("name", NAMES)
def test_photos_fit_where_no_header_could_be_read(name: str) -> None:
    chosen = choose_lengths([], image_rules(name))
    assert fits(chosen, rows(PHOTO)[0], name)
    assert chosen.max_tokens <= MOST_TOKENS.get(name, 4096)


def test_what_fits_already_is_left_alone_and_what_does_not_is_reported() -> None:
    rules = image_rules(NAMES[0])
    small = choose_lengths(rows((640, 480), (300, 300)), rules)
    assert (small.max_tokens, small.image_pixels, small.reason) == (2048, None, "")
    mixed = choose_lengths(rows(PHOTO, (640, 480), (640, 480), (640, 480)), rules)
    assert (mixed.max_tokens, mixed.image_pixels) == (2048, 1280 * 28 * 28)
    about, said = mixed.notes
    assert "4 rows read, images of 640 x 480 in the median" in about
    assert "at most 15,636; 25% exceed 2,048" in about
    assert said == (
        "image_pixels.max is 1003520: 1,280 tokens an image at most, so that samples fit in "
        "max_tokens"
    )


def test_of_a_model_that_is_not_known_nothing_is_claimed() -> None:
    chosen = choose_lengths(rows(PHOTO), image_rules("Some/Model-3B"))
    assert (chosen.max_tokens, chosen.image_pixels) == (2048, None)
    (note,) = chosen.notes
    assert note.startswith("the model's image processor is not known here")


def test_rows_of_text_alone_get_no_limit_of_images() -> None:
    chosen = choose_lengths(rows(PHOTO, text=9_000, num_images=0), image_rules(NAMES[0]))
    assert (chosen.image_pixels, chosen.notes) == (None, ())
