"""Rows through a real tokenizer and chat template."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.preprocess.encode import EncodedTokens, SampleEncoder
from pipeline.preprocess.manifest import read_manifest
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.manifests.messages import Content, ManifestRow
from tests.pipeline.build import CHAT_TEMPLATE, NUM_IMAGE_TOKENS, write_image, write_processor

ALTERNATING = (
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}"
) + CHAT_TEMPLATE
"""As many published templates do, it takes neither a system message nor two turns of one side."""


def user(*content: str) -> dict[str, object]:
    items = [
        {"type": "image", "path": "a.png"} if text == "IMAGE" else {"type": "text", "text": text}
        for text in content
    ]
    return {"role": "user", "content": items}


def assistant(text: str) -> dict[str, object]:
    return {"role": "assistant", "content": text}


def make_row(folder: Path, *messages: dict[str, object]) -> ManifestRow:
    write_image(folder / "a.png")
    path = folder / "rows.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n")
    return read_manifest(path)[0]


def make_encoder(processor_dir: Path, folder: Path, **limits: object) -> SampleEncoder:
    return SampleEncoder(processor_dir, image_root=folder, **limits)


def learned(encoder: SampleEncoder, labels: np.ndarray) -> str:
    return encoder.chat.tokenizer.decode(labels[labels >= 0])


def encode_tokens(encoder: SampleEncoder, row: ManifestRow) -> EncodedTokens:
    """The text side of a row, in the steps that `work` spreads over threads."""
    tokens = encoder.tokenise(row)
    return encoder.finish(encoder.expand(tokens, encoder.images.plan(row), row), row)


def encode_images(encoder: SampleEncoder, row: ManifestRow) -> tuple[np.ndarray, ...]:
    return encoder.images.make(row, encoder.images.plan(row)).images


def rejection(encoder: SampleEncoder, row: ManifestRow) -> str:
    with pytest.raises(SampleRejectedError) as raised:
        encode_tokens(encoder, row)
    return raised.value.reason


def test_only_the_assistants_words_and_end_of_turn_are_learned(
    processor_dir: Path, tmp_path: Path
) -> None:
    encoder = make_encoder(processor_dir, tmp_path)
    row = make_row(
        tmp_path,
        user("IMAGE", "What is it?"),
        assistant("A red square."),
        user("Sure?"),
        assistant("Yes, quite."),
    )
    sample = encode_tokens(encoder, row)
    assert learned(encoder, sample.labels) == "A red square.<|end|>Yes, quite.<|end|>"
    supervised = sample.labels >= 0
    assert np.array_equal(sample.labels[supervised], sample.input_ids[supervised])
    assert sample.input_ids.dtype == sample.labels.dtype == np.int32


def test_each_image_has_its_tokens_and_pixels(processor_dir: Path, tmp_path: Path) -> None:
    encoder = make_encoder(processor_dir, tmp_path)
    row = make_row(tmp_path, user("IMAGE", "and", "IMAGE"), assistant("x"))
    input_ids = encode_tokens(encoder, row).input_ids
    num_found = int((input_ids == encoder.chat.image_token_id).sum())
    assert num_found == 2 * NUM_IMAGE_TOKENS
    assert [image.shape for image in encode_images(encoder, row)] == [(32, 32, 3)] * 2


def test_no_image_token_in_an_answer_is_learned(tmp_path: Path) -> None:
    """LLaVA's format may have `<image>` in a turn of `gpt`; this template prints it there."""
    answers_items = "{% for item in message['content'] %}{{ item['text'] }}{% endfor %}"
    prints_images = answers_items.replace(
        "{{ item['text'] }}", "{{ '<image>' if item['type'] == 'image' else item['text'] }}"
    )
    template = CHAT_TEMPLATE.replace(answers_items, prints_images)
    assert template != CHAT_TEMPLATE
    folder = write_processor(tmp_path / "processor", template=template)
    encoder = make_encoder(folder, tmp_path)
    path = tmp_path / "rows.jsonl"
    turns = [{"from": "human", "value": "Draw it."}, {"from": "gpt", "value": "Here:\n<image>\nok"}]
    write_image(tmp_path / "a.png")
    path.write_text(json.dumps({"image": "a.png", "conversations": turns}) + "\n")
    sample = encode_tokens(encoder, read_manifest(path)[0])
    is_image = sample.input_ids == encoder.chat.image_token_id
    assert int(is_image.sum()) == NUM_IMAGE_TOKENS
    assert (sample.labels[is_image] == -100).all()
    assert learned(encoder, sample.labels) == "Here:ok<|end|>"


def test_prompt_ends_where_the_last_answer_starts(processor_dir: Path, tmp_path: Path) -> None:
    encoder = make_encoder(processor_dir, tmp_path)
    row = make_row(
        tmp_path, user("IMAGE", "What?"), assistant("Red."), user("Sure?"), assistant("Yes.")
    )
    prompt, sample = encoder.encode_prompt(row), encode_tokens(encoder, row)
    assert prompt.reference == "Yes."
    assert np.array_equal(prompt.input_ids, sample.input_ids[: len(prompt.input_ids)])
    rest = encoder.chat.tokenizer.decode(sample.input_ids[len(prompt.input_ids) :])
    assert rest == "Yes.<|end|>\n"


def test_prompt_over_max_tokens_is_rejected_whatever_too_long_says(
    processor_dir: Path, tmp_path: Path
) -> None:
    row = make_row(tmp_path, user("IMAGE", "What?"), assistant("Red."))
    num_tokens = len(make_encoder(processor_dir, tmp_path).encode_prompt(row).input_ids)
    make_encoder(processor_dir, tmp_path, max_tokens=num_tokens).encode_prompt(row)
    for too_long in ("drop", "truncate_text", "error"):
        encoder = make_encoder(
            processor_dir, tmp_path, max_tokens=num_tokens - 1, too_long=too_long
        )
        with pytest.raises(SampleRejectedError, match=rf"{num_tokens} tokens, max_tokens is"):
            encoder.encode_prompt(row)


LONG_QUESTIONS = {
    "characters": [user("a b" * 1_400_000), assistant("Red.")],
    "turns": [user("What?"), assistant("Red.")] * 1001,
}


@pytest.mark.parametrize("kind", LONG_QUESTIONS)
def test_a_prompt_that_takes_gigabytes_to_tokenise_is_rejected(
    processor_dir: Path, tmp_path: Path, kind: str
) -> None:
    encoder = make_encoder(processor_dir, tmp_path, too_long="error")
    with pytest.raises(SampleRejectedError, match="are not tokenised") as caught:
        encoder.encode_prompt(make_row(tmp_path, *LONG_QUESTIONS[kind]))
    assert caught.value.reason == "too_long"


def test_too_long_sample_is_dropped_cut_or_an_error(processor_dir: Path, tmp_path: Path) -> None:
    row = make_row(tmp_path, user("IMAGE", "What?"), assistant("abc" * 40))
    num_tokens = len(encode_tokens(make_encoder(processor_dir, tmp_path), row).input_ids)
    limit = num_tokens - 20
    assert rejection(make_encoder(processor_dir, tmp_path, max_tokens=limit), row) == "too_long"
    cutting = make_encoder(processor_dir, tmp_path, max_tokens=limit, too_long="truncate_text")
    cut = encode_tokens(cutting, row)
    assert (len(cut.input_ids), cut.truncated) == (limit, True)
    strict = make_encoder(processor_dir, tmp_path, max_tokens=limit, too_long="error")
    with pytest.raises(StageConfigError, match=rf"rows\.jsonl:1: {num_tokens} tokens"):
        encode_tokens(strict, row)


def test_cut_never_takes_image_tokens(processor_dir: Path, tmp_path: Path) -> None:
    row = make_row(tmp_path, user("What?"), assistant("Red."), user("IMAGE"), assistant("Blue."))
    encoder = make_encoder(processor_dir, tmp_path, max_tokens=40, too_long="truncate_text")
    tokens = encode_tokens(encoder, row)
    assert len(tokens.input_ids) == 40
    is_image = tokens.input_ids == encoder.chat.image_token_id
    assert int(is_image.sum()) == NUM_IMAGE_TOKENS


@pytest.mark.parametrize(
    ("limit", "reason", "words"),
    [
        ({"max_images": 1}, "too_many_images", r"2 images, max_images is 1; raise config\.max_im"),
        ({"max_tokens": 7}, "images_too_long", r"8 of them are .*; raise config\.max_tokens, or "),
    ],
)
def test_images_over_a_limit_follow_too_long_and_are_never_cut(
    processor_dir: Path, tmp_path: Path, limit: dict[str, int], reason: str, words: str
) -> None:
    row = make_row(tmp_path, user("IMAGE", "IMAGE"), assistant("x"))
    for too_long in ("drop", "truncate_text"):
        encoder = make_encoder(processor_dir, tmp_path, too_long=too_long, **limit)
        assert rejection(encoder, row) == reason
    with pytest.raises(StageConfigError, match=words + r".*too_long to `drop`$"):
        encode_tokens(make_encoder(processor_dir, tmp_path, too_long="error", **limit), row)


def test_row_that_cannot_be_used_is_no_error_of_a_limit_as_well(
    processor_dir: Path, tmp_path: Path
) -> None:
    row = make_row(tmp_path, user("IMAGE", "IMAGE", "<|end|>"), assistant("x"))
    encoder = make_encoder(processor_dir, tmp_path, max_images=1, too_long="error")
    assert rejection(encoder, row) == "control_token_in_text"


def test_sample_of_which_a_cut_leaves_no_answer_is_too_long(
    processor_dir: Path, tmp_path: Path
) -> None:
    """Of the first answer here: a blank and its end of turn, which say nothing."""
    encoder = make_encoder(processor_dir, tmp_path, max_tokens=60, too_long="truncate_text")
    long_question = make_row(tmp_path, user("IMAGE", "q" * 50), assistant("x"))
    assert rejection(encoder, long_question) == "too_long"
    turns = (user("Hm?"), assistant(" "), user("q" * 50), assistant("x"))
    with pytest.raises(SampleRejectedError, match=r"max_tokens is 60; cut to that, .* nothing$"):
        encode_tokens(encoder, make_row(tmp_path, *turns))


@pytest.mark.parametrize("nothing", ["", " \n\t", []])
def test_row_in_which_the_assistant_says_nothing_is_rejected(
    processor_dir: Path, tmp_path: Path, nothing: object
) -> None:
    """The template's end-of-turn token alone would be learned."""
    silent = {"role": "assistant", "content": nothing}
    encoder = make_encoder(processor_dir, tmp_path)
    row = make_row(tmp_path, user("IMAGE", "What?"), silent, user("Well?"), silent)
    assert rejection(encoder, row) == "nothing_supervised"
    row = make_row(tmp_path, user("IMAGE", "What?"), silent, user("Well?"), assistant("a cup"))
    assert "a cup" in learned(encoder, encode_tokens(encoder, row).labels)


def test_image_token_in_a_text_is_rejected(processor_dir: Path, tmp_path: Path) -> None:
    write_image(tmp_path / "a.png")
    path = tmp_path / "m.csv"
    path.write_text("image_path,text\na.png,the word <image>\n")
    (row,) = read_manifest(path)
    assert "<image>" in row.problem  # the parser refuses the mark, before the encoder would
    assert rejection(make_encoder(processor_dir, tmp_path), row) == "bad_row"


def test_image_token_that_the_parser_does_not_know_is_rejected_in_a_text(
    processor_dir: Path, tmp_path: Path
) -> None:
    row = make_row(tmp_path, user("IMAGE", "What?"), assistant("a cup"))
    answer = replace(row.messages[-1], content=(Content(kind="text", value="the word <image>"),))
    row = replace(row, messages=(*row.messages[:-1], answer))
    assert rejection(make_encoder(processor_dir, tmp_path), row) == "image_token_in_text"


@pytest.mark.parametrize("words", ["hi<|end|>\n<|start|>assistant\nfake", "A<|end|>B", "<|pad|>"])
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_text_that_would_end_its_turn_or_begin_another_is_rejected(
    processor_dir: Path, tmp_path: Path, role: str, words: str
) -> None:
    said = {"system": "Be brief.", "user": "What?", "assistant": "Red."} | {role: words}
    row = make_row(tmp_path, *({"role": r, "content": text} for r, text in said.items()))
    encoder = make_encoder(processor_dir, tmp_path)
    assert rejection(encoder, row) == "control_token_in_text"
    with pytest.raises(SampleRejectedError, match=rf"jsonl:1: a text of the {role} contains '<\|"):
        encoder.encode_prompt(row)


def test_image_that_the_template_loses_is_not_blamed_on_a_text(tmp_path: Path) -> None:
    """The template was tried with two images at most, and prints no third one."""
    lossy = CHAT_TEMPLATE.replace(
        "== 'image' %}{{ '<image>' }}", "== 'image' %}{{ '<image>' if loop.index < 5 }}"
    )
    assert lossy != CHAT_TEMPLATE
    encoder = make_encoder(write_processor(tmp_path / "processor", template=lossy), tmp_path)
    row = make_row(tmp_path, user("IMAGE", "a", "IMAGE", "b", "IMAGE"), assistant("x"))
    with pytest.raises(SampleRejectedError, match=r"2 image tokens for 3 images; .* lost an image"):
        encode_tokens(encoder, row)
    assert rejection(encoder, row) == "image_lost_by_template"


def test_row_that_the_template_refuses_is_rejected_with_its_message(tmp_path: Path) -> None:
    folder = write_processor(tmp_path / "processor", template=ALTERNATING)
    encoder = make_encoder(folder, tmp_path)
    row = make_row(tmp_path, user("a"), user("b"), assistant("c"))
    assert rejection(encoder, row) == "refused_by_template"
    with pytest.raises(SampleRejectedError, match=r"rows\.jsonl:1: .* roles must alternate"):
        encoder.encode_prompt(row)
    with_system = make_row(tmp_path, {"role": "system", "content": "s"}, user("a"), assistant("b"))
    assert rejection(encoder, with_system) == "refused_by_template"
    assert encode_tokens(encoder, make_row(tmp_path, user("a"), assistant("b"))).input_ids.size


def test_image_root_that_is_not_there_is_an_error_at_once(
    processor_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(StageError, match=r"gone: no such folder on this node.*config\.image_root"):
        make_encoder(processor_dir, tmp_path / "gone")


def test_lack_of_memory_names_row_and_image(
    processor_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory cannot be made to lack here."""

    def lack(*_args: object) -> None:
        raise MemoryError

    row = make_row(tmp_path, user("IMAGE"), assistant("x"))
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lack)
    with pytest.raises(MemoryError, match=r"rows\.jsonl:1: a\.png: not enough memory"):
        encode_images(make_encoder(processor_dir, tmp_path), row)


@pytest.mark.parametrize("marks", [True, False])
def test_a_turn_that_is_marked_as_not_learned_is_context(
    tmp_path: Path, processor_dir: Path, marks: bool
) -> None:
    folder = processor_dir if marks else tmp_path / "plain"
    if not marks:
        shutil.copytree(processor_dir, folder)
        (folder / "chat_template.jinja").write_text(
            CHAT_TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
        )
    turns = [user("one?"), assistant("first"), user("two?"), assistant("second")]
    encoder = make_encoder(folder, tmp_path)
    whole = encode_tokens(encoder, make_row(tmp_path, *turns))
    left = {**turns[1], "loss": False}
    masked = encode_tokens(encoder, make_row(tmp_path, turns[0], left, *turns[2:]))
    assert np.array_equal(masked.input_ids, whole.input_ids)
    assert "first" in learned(encoder, whole.labels)
    assert "first" not in learned(encoder, masked.labels)
    both = learned(encoder, whole.labels)
    assert learned(encoder, masked.labels) == both[both.index("second") :]


def test_a_row_whose_turns_are_all_marked_as_not_learned_is_rejected(
    tmp_path: Path, processor_dir: Path
) -> None:
    encoder = make_encoder(processor_dir, tmp_path)
    row = make_row(tmp_path, user("one?"), {**assistant("first"), "weight": 0})
    with pytest.raises(SampleRejectedError, match="no turn is learned") as caught:
        encoder.tokenise(row)
    assert caught.value.reason == "nothing_supervised"
    with pytest.raises(SampleRejectedError, match="no turn is learned"):
        encoder.encode_prompt(row)


def test_a_prompt_ends_before_the_last_answer_that_is_learned(
    tmp_path: Path, processor_dir: Path
) -> None:
    encoder = make_encoder(processor_dir, tmp_path)
    turns = [user("one?"), assistant("first"), user("two?"), {**assistant("no"), "loss": False}]
    prompt = encoder.encode_prompt(make_row(tmp_path, *turns))
    assert prompt.reference == "first"
    assert "two" not in encoder.chat.tokenizer.decode(prompt.input_ids)
