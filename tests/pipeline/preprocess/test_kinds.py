"""Every kind of processor against the real one: the same pixels, the same tokens."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.manifest import read_manifest
from tests.pipeline.kinds import (
    KINDS,
    encode_as_hugging_face,
    make_processor,
    pixel_values_of,
    pixel_values_of_hugging_face,
    write_kind,
)

SIZES = [(1, 1), (28, 28), (29, 27), (300, 200), (200, 300), (640, 16), (16, 640), (1000, 1000)]
"""Width and height: tiny, of one tile, around one, of both orientations, thin, large."""


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def encoder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> SampleEncoder:
    folder = tmp_path_factory.mktemp(kind)
    (folder / "images").mkdir()
    return SampleEncoder(
        write_kind(kind, folder / "processor"),
        image_root=folder / "images",
        max_tokens=100_000,
        image_decoding="exact",
    )


def write_picture(encoder: SampleEncoder, name: str, size: tuple[int, int], turn: int = 1) -> str:
    """Noise, which no two filters or offsets make alike."""
    rng = np.random.default_rng(size[0] * 10_000 + size[1])
    pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = turn
    Image.fromarray(pixels).save(encoder.images.source.root / name, exif=exif)
    return name


def user(*items: str) -> dict[str, Any]:
    """A name of a file is an image; anything else a text."""
    content = [
        {"type": "image", "path": item} if item.endswith(".png") else {"type": "text", "text": item}
        for item in items
    ]
    return {"role": "user", "content": content}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def check(kind: str, encoder: SampleEncoder, *messages: dict[str, Any]) -> None:
    """Encode a row as the stage does, and compare all of it."""
    path = encoder.images.source.root / "rows.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n")
    row = read_manifest(path)[0]
    planned = encoder.images.plan(row)
    tokens = encoder.finish(encoder.expand(encoder.tokenise(row), planned, row), row)
    theirs = encode_as_hugging_face(kind, list(messages), encoder.images.source.root)
    assert tokens.input_ids.tolist() == list(theirs["input_ids"][0])
    if not planned:
        assert "pixel_values" not in theirs
        return
    images = encoder.images.make(row, planned).images
    expected = pixel_values_of_hugging_face(kind, theirs)
    found = pixel_values_of(kind, images)
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)
    assert (tokens.labels[tokens.input_ids == encoder.chat.image_token_id] == -100).all()


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_pixels_and_tokens_are_those_of_hugging_face(
    kind: str, encoder: SampleEncoder, size: tuple[int, int]
) -> None:
    name = write_picture(encoder, "one.png", size)
    check(kind, encoder, user(name, "What is this?"), assistant("A red cup."))


def test_any_size_gives_the_pixels_and_tokens_of_hugging_face(
    kind: str, encoder: SampleEncoder
) -> None:
    side = st.integers(1, 260)

    @settings(derandomize=True, deadline=None, max_examples=40)
    @given(st.tuples(side, side).filter(lambda size: max(size) <= 200 * min(size)))
    def check_size(size: tuple[int, int]) -> None:
        name = write_picture(encoder, "any.png", size)
        check(kind, encoder, user("This: ", name, "\n\nWhat?"), assistant("Red.\n\nYes."))

    check_size()


@pytest.mark.parametrize("turn", [3, 6, 8])
def test_image_that_is_turned_has_the_tokens_of_its_upright_size(
    kind: str, encoder: SampleEncoder, turn: int
) -> None:
    name = write_picture(encoder, "turned.png", (150, 40), turn)
    check(kind, encoder, user(name, "What is this?"), assistant("A red cup."))


def test_several_images_in_several_turns_are_those_of_hugging_face(
    kind: str, encoder: SampleEncoder
) -> None:
    names = [write_picture(encoder, f"{n}.png", (30 + 40 * n, 90)) for n in range(4)]
    system = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    turns = [user(names[0], "and", names[1], "Which?"), assistant("The first.")]
    turns += [user("Sure?"), assistant("Yes.\n\nSure."), user(names[2], names[3]), assistant("ok")]
    check(kind, encoder, *turns)
    check(kind, encoder, system, *turns)


def test_sample_of_text_alone_is_that_of_hugging_face(kind: str, encoder: SampleEncoder) -> None:
    check(kind, encoder, user("What is this?"), assistant("A red cup."))
    check(kind, encoder, user("Why?"), assistant(" So."), user("Sure?"), assistant("Yes."))


def test_prompt_is_that_of_hugging_face_and_the_sample_goes_on_from_it(
    kind: str, encoder: SampleEncoder
) -> None:
    name = write_picture(encoder, "asked.png", (100, 70))
    turns = [user(name, "What is this?"), assistant("A red cup."), user("Sure?"), assistant("Yes.")]
    path = encoder.images.source.root / "rows.jsonl"
    path.write_text(json.dumps({"messages": turns}) + "\n")
    row = read_manifest(path)[0]
    prompt = encoder.encode_prompt(row)
    root = encoder.images.source.root
    theirs = encode_as_hugging_face(kind, turns[:-1], root, add_generation_prompt=True)
    assert prompt.input_ids.tolist() == list(theirs["input_ids"][0])
    planned = encoder.images.plan(row)
    whole = encoder.expand(encoder.tokenise(row), planned, row)
    assert np.array_equal(prompt.input_ids, whole.input_ids[: len(prompt.input_ids)])
    made = encoder.images.make(row, planned).images
    assert all(map(np.array_equal, prompt.images, made))
    assert len(prompt.images) == len(made)


def test_labels_are_on_the_assistants_words_alone(kind: str, encoder: SampleEncoder) -> None:
    name = write_picture(encoder, "labelled.png", (100, 70))
    turns = [user(name, "What?"), assistant("A red cup."), user("Sure?", name), assistant("Yes.")]
    path = encoder.images.source.root / "rows.jsonl"
    path.write_text(json.dumps({"messages": turns}) + "\n")
    row = read_manifest(path)[0]
    tokens = encoder.expand(encoder.tokenise(row), encoder.images.plan(row), row)
    end = make_processor(kind).tokenizer.eos_token
    said = encoder.chat.tokenizer.decode(tokens.input_ids[tokens.supervised])
    assert said.replace(" ", "") == f"Aredcup.{end}Yes.{end}"
