"""Marks of other tools within a text are found by their words, and other words are left alone."""

from __future__ import annotations

import time

import pytest

from slurm_jobs.formats.manifests.marks import foreign_mark
from tests.slurm_jobs.formats.manifests.builders import PICTURE, row_of

MARKS = (
    *("<vid>", "<media>", "[IMG_0]", "<|imgpad|>", "<video>", "<frames>", "<vid_1>", "<vis_token>"),
    *("[VIDEO_0]", "[image_1]", "<|media_begin|>", "{image_1}", "{{video}}", "<image_1/>", "<PIC>"),
    *("<photo>", "<img_token_3>", "<vision_feature>", "<imagePlaceholder>", "<|vision_bos|>"),
    *("<fake_token_around_image>", "<start_of_image>", "<|image_1|>", "<IMG_CONTEXT>", "[IMG]"),
    *("[IMG_BREAK]", "[IMG_END]", "<image:3>", "<im_patch>", "<image_soft_token>", "<ref-object>"),
    *("<|IMG_START|>", "<Img>", "<ImageHere>", "<begin_of_image>", "<image 2>", "<global_img>"),
)
NO_MARKS = (
    *("<image_url>", "<video-js>", "[Image 1]", "a[image]b[0]", "[Figure 2]", "<im>", "<imagine>"),
    *(
        "<div>",
        "<token>",
        "<pad>",
        "[VIDEOS]",
        "[1]",
        "<mediator>",
        "<|im_start|>",
        "x < image > y",
    ),
    *("<vision>a cat</vision>", "[img]http://a/b.png[/img]", "<image_id>", "<start>", "[GLOBAL]"),
)


@pytest.mark.parametrize("mark", MARKS)
def test_a_name_of_words_for_media_is_a_mark(mark: str) -> None:
    row = row_of({**PICTURE, "question": f"{mark} What is it?", "answer": "A cat."})
    assert row.problem.startswith(f"a text of the user has the mark {mark}, which is not read")
    assert foreign_mark(f"What is it? {mark}", has_images=True, is_users=True) == mark


@pytest.mark.parametrize("text", NO_MARKS)
def test_names_with_other_words_are_no_marks(text: str) -> None:
    assert foreign_mark(f"It is {text}, is it", has_images=False, is_users=False) is None


ORDINARY = (
    *("A List<Photo>", "Array<Clip> here", "std::vector<Sound>", "an Array<VideoFrame>"),
    *("video[frame_start]", "vocab[image_token] = 1", "x[frame_1]", "x[IMAGE_TOKEN]", "a[img]"),
    *(
        "cut <clip> <start>",
        "a <frame> here",
        "play <sound/>",
        "<sound/>",
        "<img/>",
        "an IMG named [IMG_1234]",
    ),
)
"""Code and other texts with names of media, by whomever."""


@pytest.mark.parametrize("text", ORDINARY)
@pytest.mark.parametrize("is_users", [False, True])
def test_ordinary_texts_and_code_have_no_marks(text: str, is_users: bool) -> None:
    assert foreign_mark(text, has_images=True, is_users=is_users) is None


@pytest.mark.parametrize(
    "text", ["a cat [image_1]", "[VIDEO_12]", "[Photo_2]", "[Audio_1] a", "attached is <photo>"]
)
def test_some_names_are_marks_only_in_texts_of_the_user(text: str) -> None:
    assert foreign_mark(text, has_images=True, is_users=False) is None
    assert foreign_mark(text, has_images=True, is_users=True) is not None


def test_numbered_images_are_marks_in_answers_but_not_as_links() -> None:
    for text in ("[IMG_0]", "[IMG0][IMG1]", "a cat: [IMG_12]"):
        assert foreign_mark(text, has_images=True, is_users=False) is not None
    for text in ("[IMG_12](a.jpg)", "[IMG_12]: a.jpg", "x[IMG_0]", "[IMG_1234]"):
        assert foreign_mark(text, has_images=True, is_users=False) is None


@pytest.mark.parametrize(
    "text", ["{photo}", "{frames}", "{{ clip }}", "S = {vis}", "use `<vision>`"]
)
def test_words_in_braces_and_quotes_of_the_user_are_no_marks(text: str) -> None:
    assert foreign_mark(text, has_images=True, is_users=True) is None


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        *(("Look:\n<media>\nWhat?", "<media>"), ("a dog<bbox>", "<bbox>")),
        *(("Look<vid_1>", "<vid_1>"), ("Look[IMG]", "[IMG]"), ("Look <vid> now", "<vid>")),
        *(("<media> now", "<media>"), ("[IMG_PAD]", "[IMG_PAD]")),
        *(("A <|imgpad|> in </>", "<|imgpad|>"), ("\u56fe<image_1>", "<image_1>")),
    ],
)
@pytest.mark.parametrize("is_users", [False, True])
def test_marks_count_where_media_would_stand(text: str, mark: str, is_users: bool) -> None:
    assert foreign_mark(text, has_images=True, is_users=is_users) == mark


def test_a_number_in_brackets_is_a_mark_in_a_task_about_code() -> None:
    text = "Write Python code for [IMG_0]."
    assert foreign_mark(text, has_images=True, is_users=True) == "[IMG_0]"


def test_a_long_text_of_words_for_media_takes_no_long_time() -> None:
    text = ("<" + "image_token_" * 40) * 2_000 + "[" + "IMG_PAD" * 20_000 + "<|" + "pad" * 50_000
    started = time.process_time()
    assert foreign_mark(text, has_images=True, is_users=True) is None
    assert time.process_time() - started < 5
