"""Keys of rows: read, ignored in the open, or a reason to reject the row; alike in all formats."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.preprocess.manifest import read_manifest
from slurm_jobs.shared.configs.stages import Columns
from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.manifests.messages import ManifestRow
from slurm_jobs.shared.manifests.tables import looked_at
from slurm_jobs.shared.manifests.values import RowOptions

Row = Mapping[str, Any]
Write = Callable[[Path, Row], Path]


def as_lines(folder: Path, row: Row) -> Path:
    (folder / "m.jsonl").write_text(json.dumps(row) + "\n")
    return folder / "m.jsonl"


def as_list(folder: Path, row: Row) -> Path:
    (folder / "m.json").write_text(json.dumps([row], indent=2))
    return folder / "m.json"


def as_parquet(folder: Path, row: Row) -> Path:
    pq.write_table(pa.Table.from_pylist([dict(row)]), folder / "m.parquet")
    return folder / "m.parquet"


def as_csv(folder: Path, row: Row) -> Path:
    with (folder / "m.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, row)
        writer.writeheader()
        writer.writerow(row)
    return folder / "m.csv"


MAPPINGS = [as_lines, as_list, as_parquet]
FORMATS = [*MAPPINGS, as_csv]


def one(path: Path, **options: Any) -> ManifestRow:
    (row,) = read_manifest(path, **options)
    return row


def said(row: ManifestRow) -> list[tuple[str, str]]:
    return [
        (m.role, "|".join(f"[{i.value}]" if i.kind == "image" else i.value for i in m.content))
        for m in row.messages
    ]


def chat(*turns: Row, **others: Any) -> dict[str, Any]:
    return {"messages": list(turns) or [QUESTION, ANSWER], **others}


QUESTION = {"role": "user", "content": "How many?"}
ANSWER = {"role": "assistant", "content": "Two."}
LLAVA = [{"from": "human", "value": "<image>\nHow many?"}, {"from": "gpt", "value": "Two."}]
PIXELS = b"\x89PNG\r\n\x1a\n" + bytes(60)
BASE64 = base64.b64encode(PIXELS).decode()
ASKED = [("user", "[p.png]|How many?"), ("assistant", "Two.")]


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    "mark",
    [
        *({key: False} for key in ("loss", "train", "training", "train_on_turn", "has_loss")),
        *({key: 0} for key in ("weight", "loss_mask", "loss_scale", "lossWeight")),
        *({key: True} for key in ("masked", "is_masked")),
        *({"loss_weight": 0.0}, {"weight": "0.0"}, {"weight": "0.00"}),
        *({"Loss": "false"}, {"train": "off"}, {"train": "N"}, {"ignore_loss": "true"}),
        {"loss": False, "weight": 0},
    ],
)
def test_a_turn_that_is_marked_is_not_learned(tmp_path: Path, write: Write, mark: Row) -> None:
    row = one(write(tmp_path, chat(QUESTION, {**ANSWER, **mark}, QUESTION, ANSWER)))
    assert (row.problem, [m.is_learned for m in row.messages][1::2]) == ("", [False, True])
    assert row.ignored == ()


@pytest.mark.parametrize(
    "mark",
    [
        *({"loss": True}, {"weight": 1}, {"weight": 1.0}, {"masked": False}),
        *({"train": None}, {"loss": ""}),
    ],
)
def test_a_turn_that_is_marked_to_be_learned_is(tmp_path: Path, mark: Row) -> None:
    row = one(as_lines(tmp_path, chat({**QUESTION, "loss": False}, {**ANSWER, **mark})))
    assert (row.problem, row.messages[1].is_learned) == ("", True)


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        ({"weight": 0.5}, "`weight` of a turn is 0.5; allowed are true, fal"),
        ({"loss": "maybe"}, "`loss` of a turn is 'maybe'"),
        ({"loss_scale": 2.0}, "`loss_scale` of a turn is 2.0"),
        ({"loss": True, "weight": 0}, "`loss` and `weight` of a turn contra"),
        ({"mask": True}, "`mask` of a turn may mean either"),
        ({"role": "user", "loss": True}, "`loss` wants the user's turn learned"),
        *(
            ({key: value}, f"`{key}` of a turn is not supported")
            for keys, value in (
                (("supervised", "learnable", "backprop", "requires_grad", "include"), False),
                (("skip", "unlearned"), True),
                (("ignore",), 1),
                (("weights",), 0),
                (("train_detail",), [{"a": 1}]),
            )
            for key in keys
        ),
        ({"is_mask": 1}, "`is_mask` of a turn is 1, and may say whether"),
        ({"label": 0}, "`label` of a turn is 0, and may say whether it is"),
        ({"keep": "false"}, "`keep` of a turn is 'false', and may say"),
        (
            {"content": [{"type": "text", "text": "Hm.", "train": False}]},
            "`train` of a part of a turn is not supported",
        ),
    ],
)
def test_a_mark_that_cannot_be_honoured_rejects_the_row(
    tmp_path: Path, mark: Row, problem: str
) -> None:
    row = one(as_lines(tmp_path, chat(QUESTION, {**ANSWER, **mark}, ANSWER)))
    assert problem in row.problem


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ({"video": "v.mp4"}, "`video` holds video"),
        ({"videos": ["v.mp4"]}, "`videos` holds video"),
        ({"video_path": "v.mp4"}, "`video_path` holds video"),
        ({"video_url": "https://x.org/v"}, "`video_url` "),
        ({"audio": {"path": "a.wav", "bytes": None}}, "`audio` holds audio"),
        ({"audios": ["a.wav"]}, "`audios` holds audio"),
        ({"clip": "v.bin"}, "`clip` holds video"),
        ({"source": "v.webm"}, "`source` names video or audio"),
        ({"objects": {"bbox": [[1, 2, 3, 4]], "ref": ["dog"]}}, "`objects` holds places"),
        ({"bbox": [1, 2, 3, 4]}, "`bbox` holds places"),
        ({"tools": [{"name": "look"}]}, "`tools` holds tools"),
        ({"tools": '[{"name": "look"}]'}, "`tools` holds tools"),
        ({"functions": [{"name": "look"}]}, "`functions` holds tools"),
        ({"rejected": "No."}, "`rejected` holds preference"),
        ({"rejected_response": "No."}, "`rejected_response` holds preference"),
        ({"chosen": [ANSWER]}, "`chosen` holds preference"),
        ({"kto_tag": "x"}, "`kto_tag` holds preference"),
        ({"kto_tag": False}, "`kto_tag` holds preference"),
        ({"rejected": True}, "`rejected` holds preference"),
        ({"is_rejected": True}, "`is_rejected` holds preference"),
        ({"chosen": False}, "`chosen` holds preference"),
        ({"label": False}, "`label` holds preference"),
        ({"label": "False"}, "`label` holds preference"),
        ({"reasoning_content": "Hm."}, "`reasoning_content` holds a thought"),
        ({"chat_template_kwargs": {"max_pixels": 9}}, "`chat_template_kwargs` holds settings"),
        ({"loss": False}, "`loss` of a whole row is not supported"),
        ({"weight": "0"}, "`weight` of a whole row is not supported"),
        ({"loss_mask": [0, 1]}, "`loss_mask` of a whole row is not supported"),
        ({"loss": "off"}, "`loss` of a whole row is not supported"),
        ({"train": "N"}, "`train` of a whole row is not supported"),
        ({"train": "maybe"}, "`train` of a whole row is not supported"),
        ({"weight": "0.00"}, "`weight` of a whole row is not supported"),
        ({"weight": 0.3}, "`weight` of a whole row is not supported"),
        ({"sample_weight": 0.3}, "`sample_weight` of a whole row is not supported"),
        ({"masked": "yes"}, "`masked` of a whole row is not supported"),
        ({"learnable": False}, "`learnable` of a whole row is not supported"),
        ({"exclude": 1}, "`exclude` of a whole row is not supported"),
        ({"instruction": "Be brief."}, "`instruction` holds words that the turns do not have"),
        ({"persona": "A pirate."}, "`persona` holds words that the turns do not have"),
        ({"developer": "Be brief."}, "`developer` holds words that the turns do not have"),
        ({"documents": ["It rains."]}, "`documents` holds words that the turns do not have"),
        ({"context": "It rains."}, "`context` holds words that the turns do not have"),
        ({"photo": "p.png"}, "`photo` names a picture"),
        ({"image_1": "p.png"}, "`image_1` names a picture"),
        ({"pixel_values": "AAAA"}, "`pixel_values` names a picture"),
        ({"scan": "scans/p.TIF"}, "`scan` names a picture"),
        ({"url": "https://x.org/p.jpg?w=2"}, "`url` names a picture"),
    ],
)
def test_a_key_that_holds_content_which_is_not_read_rejects_the_row(
    tmp_path: Path, write: Write, others: Row, problem: str
) -> None:
    row = one(write(tmp_path, chat(**others)))
    assert problem in row.problem
    (key,) = others
    allowed = one(write(tmp_path, chat(**others)), columns=Columns(ignore=(key,)))
    by_value = ("source", "url", "scan")  # tables do not open ignored columns of such names
    if any(kind in problem for kind in ("video", "audio", "picture")) and not (
        write is as_parquet and key in by_value
    ):
        assert "its answer would be learned blind" in allowed.problem
        row = chat(**others, image="seen.png")
        allowed = one(write(tmp_path, row), columns=Columns(ignore=(key,)))
    assert (allowed.problem, allowed.ignored) == ("", ())
    emptied = dict.fromkeys(others, None)
    assert one(as_lines(tmp_path, chat(**emptied))).problem == ""


@pytest.mark.parametrize(
    "row",
    [
        {"video": "v.mp4", "question": "What?", "answer": "x"},
        {"image": "p.png", "question": "What?", "answer": "x"},
        {"messages": [{"role": "user", "content": "What?", "clip": "v.mp4"}, ANSWER]},
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "What?", "clip": "v.mp4"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "Two."}]},
            ]
        },
    ],
)
@pytest.mark.parametrize("write", MAPPINGS)
def test_media_cannot_be_ignored_into_a_blind_sample(
    tmp_path: Path, write: Write, row: Row
) -> None:
    columns = Columns(ignore=("video", "image", "clip"))
    assert "its answer would be learned blind" in one(write(tmp_path, row), columns=columns).problem


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    "others",
    [
        {"depth": "easy"},
        {"frame": "Commerce_buy"},
        {"speech_act": "inform"},
        {"mask": "none"},
        {"photo_credit": "A. Nyström"},
    ],
)
def test_an_ignored_key_of_a_text_is_no_media_by_its_name_alone(
    tmp_path: Path, write: Write, others: Row
) -> None:
    messages = [{"role": "user", "content": "What?"}, ANSWER]
    row = one(
        write(tmp_path, {"messages": messages, **others}), columns=Columns(ignore=tuple(others))
    )
    assert row.problem == ""


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"video": "v.mp4", "text": "a cat"}, "`video` holds video"),
        ({"audio": "a.wav", "caption": "a cat"}, "`audio` holds audio"),
        ({"image_pth": "p.png", "text": "a cat"}, "`image_pth` names a picture"),
        ({"loss": False, "text": "a cat"}, "`loss` of a whole row is not supported"),
    ],
)
def test_a_caption_without_an_image_is_rejected_by_the_key_that_holds_other_content(
    tmp_path: Path, row: Row, problem: str
) -> None:
    assert problem in one(as_lines(tmp_path, row)).problem


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    ("turn", "problem"),
    [
        ({"tool_calls": [{"name": "look"}]}, "`tool_calls` holds tools"),
        ({"function_call": {"name": "look"}}, "`function_call` holds tools"),
        *(({key: "Hm."}, f"`{key}` holds a thought") for key in ("reasoning_content", "thinking")),
        *(({key: "p.png"}, f"`{key}` names a picture") for key in ("image", "attachment")),
        ({"images": ["p.png"]}, "`images` names a picture"),
        ({"audio": {"id": "x"}}, "`audio` holds audio"),
        ({"chosen": True}, "`chosen` holds preference"),
        ({"context": "It rains."}, "`context` of a turn holds words that are not read"),
    ],
)
def test_a_key_of_a_turn_that_holds_content_rejects_the_row(
    tmp_path: Path, write: Write, turn: Row, problem: str
) -> None:
    assert problem in one(write(tmp_path, chat(QUESTION, {**ANSWER, **turn}))).problem


@pytest.mark.parametrize(
    ("text", "others", "problem"),
    [
        ("<video>What happens?", {}, "mark <video>"),
        ("<video><audio>What happens?", {}, "mark <video>"),
        ("What happens?\n<video>", {}, "mark <video>"),
        ("Where is <ref-object>?", {}, "mark <ref-object>"),
        ("What is in <bbox>?", {}, "mark <bbox>"),
        ("<image_1>What is it?", {}, "mark <image_1>"),
        ("<image 1> What is it?", {"image": "p.png"}, "mark <image 1>"),
        ("Picture 1: <img>p.png</img>\nWhat is it?", {}, "mark <img>"),
        ("<Image>\nWhat is it?", {"image": "p.png"}, "mark <Image>"),
        ("<image/>\nWhat is it?", {"image": "p.png"}, "mark <image/>"),
        ("<|image_1|>\nWhat is it?", {"image": "p.png"}, "mark <|image_1|>"),
        ("<|video_pad|>What is it?", {}, "mark <|video_pad|>"),
        ("[IMG]What is it?", {"image": "p.png"}, "mark [IMG]"),
        ("<IMAGE_TOKEN>What is it?", {"image": "p.png"}, "mark <IMAGE_TOKEN>"),
        ("Which of <video> and <video> is longer?", {}, "mark <video>"),
        ("<image> compare with <video> now", {"image": "p.png"}, "mark <video>"),
        ("Is <audio> louder than before?", {}, "mark <audio>"),
        ("Compare <Image> with that.", {"image": "p.png"}, "mark <Image>"),
        ("<IMG_CONTEXT>What is it?", {}, "mark <IMG_CONTEXT>"),
        ("<start_of_image>What is it?", {}, "mark <start_of_image>"),
        ("<image_soft_token>What is it?", {}, "mark <image_soft_token>"),
        ("<im_start><im_patch><im_end>What is it?", {}, "mark <im_start>"),
        ("<|vision_start|><|image_pad|>What is it?", {}, "mark <|vision_start|>"),
        ("(<image>./</image>)\nWhat is it?", {"image": "p.png"}, "mark </image>"),
        ("[image]\nWhat is it?", {"image": "p.png"}, "mark [image]"),
        ("What is in {image}?", {}, "mark {image}"),
        ("<images>\nWhat is it?", {"image": "p.png"}, "mark <images>"),
        ("<picture>\nWhat is it?", {"image": "p.png"}, "mark <picture>"),
        ("< image >\nWhat is it?", {"image": "p.png"}, "mark < image >"),
        ("<video_1> What is it?", {}, "mark <video_1>"),
        ("Do the <video> and <audio> elements need an end?", {}, ""),
        ("Why does the tag <video> not play?", {}, ""),
        ("Is `<video>` better than `<audio>` here?", {}, ""),
        ("Does HTML know <picture> and <video>, or not?", {}, ""),
        ("See ![image](a.svg) and [image](b) there.", {}, ""),
        ('Why does f"{image}" print None in Python?', {}, ""),
        ("Does an <Image> tag of React need an end?", {}, ""),
        ("How do I write a <video> tag?", {}, ""),
        ("<video src='a.mp4'></video> does not play", {}, ""),
        ("<video>\n<source src='a'>\n</video> does not play", {}, ""),
        ("Box: <bbox>1, 2, 3, 4</bbox>?", {}, ""),
        ("Is 1 <2> 3?", {}, ""),
    ],
)
def test_a_mark_for_media_that_are_not_read_rejects_the_row(
    tmp_path: Path, text: str, others: Row, problem: str
) -> None:
    row = one(as_lines(tmp_path, chat({"role": "user", "content": text}, ANSWER, **others)))
    assert problem in row.problem
    assert bool(row.problem) == bool(problem)


@pytest.mark.parametrize("write", MAPPINGS)
def test_unknown_keys_are_named_and_metadata_is_not(tmp_path: Path, write: Write) -> None:
    turns = [QUESTION, {**ANSWER, "mood": "glad", "id": "t1", "turn_id": 0, "num_words": 1}]
    others = {"difficulty": "hard", "score": 3, "is_safe": True, "instruction": "How\nmany?"}
    others |= {"weight_kg": 5.2, "train_id": 0, "ignored_words": ["a"]}
    row = one(write(tmp_path, chat(*turns, **others, source="coco", void="", document_id="d1")))
    assert row.problem == ""
    assert set(row.ignored) == {
        *("messages[].mood", "messages[].num_words", "document_id", *others)
    }


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    "key", ["system", "system_prompt", "System Prompt", "systemPrompt", "system_message", "sys"]
)
def test_a_rows_system_message_comes_first(tmp_path: Path, write: Write, key: str) -> None:
    row = one(write(tmp_path, chat(**{key: "Be brief."})))
    assert said(row)[0] == ("system", "Be brief.")
    again = chat({"role": "system", "content": "Be brief."}, QUESTION, ANSWER, **{key: "Be brief."})
    assert said(one(write(tmp_path, again))) == said(row)
    other = chat({"role": "system", "content": "Be long."}, QUESTION, ANSWER, **{key: "Be brief."})
    assert (
        "`system` is 'Be brief.', and a turn of the system" in one(write(tmp_path, other)).problem
    )
    assert said(one(write(tmp_path, chat(**{key: None})))) == said(one(write(tmp_path, chat())))
    blank = chat({"role": "system", "content": ""}, QUESTION, ANSWER, **{key: "Be brief."})
    assert said(one(write(tmp_path, blank))) == said(row)


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    ("column", "turns", "problem"),
    [
        ("texts", [{"system": "S", "user": "q", "assistant": "a"}], ""),
        ("messages", [{**QUESTION, "system": "S"}, ANSWER], ""),
        ("messages", [{**QUESTION, "system_prompt": "S"}, ANSWER], ""),
        (
            "texts",
            [{"user": "q", "assistant": "a"}, {"system": "S", "user": "q", "assistant": "a"}],
            "`system` of a turn is read only in the first turn",
        ),
        ("messages", [QUESTION, {**ANSWER, "system": "S"}], "`system` of a turn is read only in"),
    ],
)
def test_a_system_message_in_the_first_turn_comes_first(
    tmp_path: Path, write: Write, column: str, turns: list[Row], problem: str
) -> None:
    row = one(write(tmp_path, {column: turns}))
    assert problem in row.problem
    assert bool(row.problem) == bool(problem)
    assert problem or (said(row)[0], len(said(row))) == (("system", "S"), 3)
    other = one(write(tmp_path, {column: turns, "system": "T"}))
    assert problem or "`system` is 'T', and a turn of the system 'S'" in other.problem


IMAGE_KEYS = [
    *("image", "images", "image_path", "image_paths", "image_file", "img", "img_path", "image_url"),
    *("file_name", "filename", "path", "Image", "IMAGE_PATH", "image-path"),
    *("imagePath", "imageUrl", "image_filepath", "img_file"),
    *("imagePath", "imageUrl", "image_filepath", "img_file"),
]


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize("key", IMAGE_KEYS)
def test_common_names_of_a_picture_are_read(tmp_path: Path, write: Write, key: str) -> None:
    assert said(one(write(tmp_path, chat(**{key: "p.png"})))) == ASKED
    llava = {"conversations": LLAVA, key: "p.png"}
    assert said(one(write(tmp_path, llava))) == ASKED
    caption = {key: "p.png", "caption": "A dog."}
    assert said(one(write(tmp_path, caption), prompt="What?")) == [
        ("user", "[p.png]|What?"),
        ("assistant", "A dog."),
    ]


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"image": "p.png", "image_path": "q.png"}, "`image` lists ['p.png'], `image_path` ['q.p"),
        ({"image": "p.png", "file_name": "q.png"}, "`image` lists ['p.png'], `file_name` ['q.png"),
        ({"image": "p.png", "image_path": "p.png"}, ""),
        ({"image": "sub/p.png", "file_name": "p.png"}, ""),
        ({"image": "p.png", "image_url": "https://x.org/17"}, ""),
        ({"image": "p.png", "url": "https://x.org/17.jpg"}, ""),
        ({"image": "p.png", "image_path": None}, ""),
        ({"image": "p.png", "image_width": 3, "image_id": "p.png"}, ""),
        ({"image": "p.png", "image2": "q.png"}, "`image2` names a picture"),
        ({"image": "p.png", "depth_map": "q.png"}, "`depth_map` names a picture"),
    ],
)
def test_pictures_under_two_names_must_agree(
    tmp_path: Path, write: Write, keys: Row, problem: str
) -> None:
    row = one(write(tmp_path, chat(**keys)))
    assert problem in row.problem
    assert problem or said(row)[0] == ("user", f"[{keys['image']}]|How many?")


def test_bytes_are_taken_where_another_column_has_the_name(tmp_path: Path) -> None:
    row = one(as_parquet(tmp_path, chat(image={"bytes": b"1", "path": None}, file_name="p.png")))
    assert [image.data for image in row.images] == [b"1"]


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    "row",
    [
        {"messages": None, "conversations": LLAVA, "image": "p.png"},
        {"messages": [], "conversations": LLAVA, "image": "p.png"},
        {"conversations": None, "texts": [{"user": "How many?", "assistant": "Two."}],
         "images": ["p.png"]},
        {"messages": None, "conversations": None, "image": "p.png", "question": "How many?",
         "answer": "Two."},
    ],
)  # fmt: skip
def test_the_first_column_of_turns_that_is_not_null_is_read(
    tmp_path: Path, write: Write, row: Row
) -> None:
    assert said(one(write(tmp_path, row))) == ASKED


@pytest.mark.parametrize("write", FORMATS)
@pytest.mark.parametrize("asked", ["prompt", "question", "query", "instruction"])
@pytest.mark.parametrize("answered", ["text", "answer", "response", "output", "completion"])
def test_a_question_and_its_answer_are_read(
    tmp_path: Path, write: Write, asked: str, answered: str
) -> None:
    row = {"image": "p.png", asked: "How many?", answered: "Two."}
    assert said(one(write(tmp_path, row))) == ASKED
    marked = {"image": "p.png", asked: "How many?\n<image>", answered: "Two."}
    assert said(one(write(tmp_path, marked)))[0] == ("user", "How many?|[p.png]")
    alone = {asked: "How many?", answered: "Two."}
    assert said(one(write(tmp_path, alone)))[0] == ("user", "How many?")


@pytest.mark.parametrize("write", FORMATS)
def test_an_answer_that_two_columns_could_be_needs_columns(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, {"image": "p.png", "text": "A dog.", "caption": "A cat."})
    problem = "`text` and `caption` differ, and each could be the assistant's answer; set `columns:"
    assert problem in one(path).problem
    row = one(path, columns=Columns(text="caption"))
    assert (said(row)[-1], row.ignored) == (("assistant", "A cat."), ("text",))


@pytest.mark.parametrize("write", FORMATS)
def test_columns_name_what_holds_what(tmp_path: Path, write: Write) -> None:
    row = {"snap": "p.png", "wish": "How many?", "words": "Two.", "tone": "Be brief."}
    columns = Columns(image="snap", text="words", prompt="wish", system="tone")
    read = one(write(tmp_path, row), columns=columns)
    assert said(read) == [("system", "Be brief."), *ASKED]


@pytest.mark.parametrize("write", MAPPINGS)
def test_columns_name_the_conversation(tmp_path: Path, write: Write) -> None:
    row = one(write(tmp_path, {"talk": LLAVA, "image": "p.png"}), columns=Columns(messages="talk"))
    assert said(row) == ASKED


@pytest.mark.parametrize("write", MAPPINGS)
def test_the_answer_that_columns_names_is_read_where_a_row_has_turns_too(
    tmp_path: Path, write: Write
) -> None:
    path = write(tmp_path, chat(image="p.png", caption="A cat.", wish="What?", conversations=LLAVA))
    row = one(path, columns=Columns(text="caption", prompt="wish"))
    assert said(row) == [("user", "[p.png]|What?"), ("assistant", "A cat.")]
    assert row.ignored == ("messages", "conversations")
    ignoring = Columns(text="caption", prompt="wish", ignore=("messages", "conversations"))
    assert (said(one(path, columns=ignoring)), one(path, columns=ignoring).ignored) == (
        said(row),
        (),
    )


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    ("row", "columns", "problem"),
    [
        (chat(caption=None), {"text": "caption"}, "`caption`, which `columns.text` names, is empt"),
        (chat(wish="What?"), {"prompt": "wish"}, "set `columns: {ignore: [messages]}`, or take"),
        (
            chat(caption="A cat."),
            {"text": "caption", "messages": "messages"},
            "take `columns.messages` out, or take `columns.text` out",
        ),
        (
            chat(image="p.png", photo=None),
            {"image": "photo"},
            "`photo`, which `columns.image` names, is empty, but `image` is not; write its picture",
        ),
        (
            chat(image={"path": "p.png", "bytes": None}, photo=None),
            {"image": "photo"},
            "but `image` is not",
        ),
        (chat(file_name="p.png", photo=None), {"image": "photo"}, "but `file_name` is not"),
        (
            {"image": "p.png", "wish": None, "question": "What?", "answer": "A cat."},
            {"prompt": "wish"},
            "`wish`, which `columns.prompt` names, is empty, but `question` is not",
        ),
        (chat(tone=None, system="Be brief."), {"system": "tone"}, "but `system` is not"),
        (chat(image=None, photo=None), {"image": "photo"}, ""),
        (chat(image="p.png", photo="q.png"), {"image": "photo"}, ""),
        (
            chat(image="p.png", photo=None),
            {"image": "photo", "ignore": ("image",)},
            "its answer would be learned blind",
        ),
    ],
)
def test_a_column_that_columns_replaces_is_not_dropped_where_the_named_one_is_empty(
    tmp_path: Path, write: Write, row: Row, columns: dict[str, Any], problem: str
) -> None:
    read = one(write(tmp_path, row), columns=Columns(**columns))
    assert problem in read.problem
    assert bool(read.problem) == bool(problem)


TYPED = {"role": "assistant", "content": [{"type": "text", "text": "Two."}]}


def numbered(*indices: Any, key: str = "index") -> Row:
    images = [{key: index, "type": "image", "text": None} for index in indices]
    return {"role": "user", "content": [*images, {key: None, "type": "text", "text": "Which?"}]}


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    ("turns", "shown"),
    [
        ([numbered(1, 0), TYPED], ["b.jpg", "a.jpg"]),
        ([numbered(0, 1), TYPED], ["a.jpg", "b.jpg"]),
        ([numbered(1), TYPED, numbered(0, 1), TYPED], ["b.jpg", "a.jpg", "b.jpg"]),
        ([numbered(1.0, 0.0), TYPED], ["b.jpg", "a.jpg"]),
        ([numbered(1, 2), TYPED], "`index` of an image is 2, but 2 are listed, counted from 0"),
        ([numbered(-1, 0), TYPED], "`index` of an image is -1"),
        ([numbered(1, 1), TYPED], "no place for an image has the `index` 0 of 2 listed"),
        ([numbered(1, None), TYPED], "1 of 2 places for images have an `index`, expected all"),
        ([numbered("1", "0"), TYPED], "of an image is '1', expected a number from 0"),
    ],
)
def test_an_image_item_with_an_index_shows_that_image_of_the_row(
    tmp_path: Path, write: Write, turns: list[Row], shown: list[str] | str
) -> None:
    row = one(write(tmp_path, chat(*turns, images=["a.jpg", "b.jpg"])))
    if isinstance(shown, str):
        assert shown in row.problem
    else:
        assert (row.problem, [image.value for image in row.images]) == ("", shown)


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ({"path": "b.jpg", "index": 1}, "in `images`: `index` of image 0 is 1: list them in ord"),
        ({"path": "b.jpg", "bbox": [1, 2, 3, 4]}, "in `images`: `bbox` holds places"),
        ({"path": "b.jpg", "mask": "m.png"}, "in `images`: `mask` names a picture"),
        ({"path": "b.jpg", "index": 0, "width": 9, "id": 7, "bytes": None}, ""),
        ({"path": "b.jpg", "mood": "glad"}, ""),
    ],
)
def test_a_key_of_a_listed_image_is_not_dropped_unseen(
    tmp_path: Path, write: Write, image: Row, problem: str
) -> None:
    row = one(write(tmp_path, chat(images=[image])))
    assert problem in row.problem
    assert bool(row.problem) == bool(problem)
    assert row.ignored == (("images[].mood",) if "mood" in image else ())


@pytest.mark.parametrize("key", ["index", "image_index", "imageIndex", "idx", "img_idx"])
def test_the_index_of_an_image_has_several_names(tmp_path: Path, key: str) -> None:
    row = one(as_lines(tmp_path, chat(numbered(1, 0, key=key), ANSWER, images=["a.jpg", "b.jpg"])))
    assert ([image.value for image in row.images], row.ignored) == (["b.jpg", "a.jpg"], ())


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["p.png"]).dictionary_encode(),
        pa.array(["p.png"], pa.large_string()),
        pa.array(["p.png"], pa.string_view()),
        pa.array([PIXELS], pa.binary_view()),
        pa.array([PIXELS], pa.binary(len(PIXELS))),
        pa.array([[("front", "p.png")]], pa.map_(pa.string(), pa.string())),
        pa.array([["p.png"]], pa.list_(pa.string(), 1)),
        pa.array([[None, None, None, "p.png"]]),
    ],
    ids=lambda values: str(values.type)[:12],
)
@pytest.mark.parametrize("is_arrow", [False, True])
def test_a_picture_in_a_column_of_any_type_is_seen(
    tmp_path: Path, values: pa.Array, *, is_arrow: bool
) -> None:
    table = pa.table({"messages": [[QUESTION, ANSWER]], "scan": values, "width": [3]})
    if is_arrow:
        assert looked_at(table.schema, RowOptions()) == ["messages", "scan"]
        return
    try:
        pq.write_table(table, tmp_path / "m.parquet")
    except pa.ArrowException:
        pytest.skip("this pyarrow writes no such column to Parquet")
    assert "`scan` names a picture" in one(tmp_path / "m.parquet").problem


@pytest.mark.parametrize("write", [as_parquet, as_csv])
def test_a_column_that_does_not_exist_is_refused_with_those_that_do(
    tmp_path: Path, write: Write
) -> None:
    path = write(tmp_path, {"picture": "p.png", "text": "A dog."})
    words = r"no column `pictures`, which `columns\.image` names; did you mean `picture`\? found: "
    with pytest.raises(StageConfigError, match=words):
        read_manifest(path, columns=Columns(image="pictures"))


@pytest.mark.parametrize("write", FORMATS)
def test_two_keys_of_columns_that_name_one_column_are_refused(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, {"image": "p.png", "words": "A dog."})
    columns = Columns(image="words", text="words")
    if write in (as_parquet, as_csv):
        with pytest.raises(StageConfigError, match="name the same column, `words`"):
            read_manifest(path, columns=columns)
    else:
        assert one(path, columns=columns).problem


def test_a_csv_without_names_of_columns_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("photos/1.jpg,a dog\nphotos/2.jpg,a cat\n")
    with pytest.raises(StageConfigError, match="The first line must name the columns"):
        read_manifest(tmp_path / "m.csv")


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv", "metadata.parquet"])
def test_an_image_folder_of_hugging_face_is_read(tmp_path: Path, name: str) -> None:
    writers = {"jsonl": as_lines, "csv": as_csv, "parquet": as_parquet}
    written = writers[name.partition(".")[2]](tmp_path, {"file_name": "p.png", "text": "A dog."})
    row = one(written.rename(tmp_path / name), prompt="What?")
    assert said(row) == [("user", "[p.png]|What?"), ("assistant", "A dog.")]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [{"role": "user", "content": "<video>Why is it funny?"},
                      {"role": "assistant", "content": "A baby reads."}], "videos": ["d/1.mp4"]},
        {"messages": [{"role": "user", "content": "<audio>What is it?"},
                      {"role": "assistant", "content": "Glass."}], "audios": ["d/1.mp3"]},
        {"video": "v_7.mp4", "conversations": [{"from": "human", "value": "<video>\nDescribe it."},
                                               {"from": "gpt", "value": "Men wash cars."}]},
        {"messages": [{"role": "user", "content": [{"type": "video", "path": "v.mp4"}]}, ANSWER]},
        {"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": "f"},
                           {"from": "observation", "value": "o"}, {"from": "gpt", "value": "a"}]},
        {"messages": [QUESTION, {"role": "assistant", "content": None,
                                 "tool_calls": [{"function": {"name": "f"}}]},
                      {"role": "tool", "content": "Sunny"}, ANSWER]},
        {"messages": [QUESTION, ANSWER], "images": [], "objects": {"ref": [], "bbox": [[1, 2]]}},
        {"prompt": [QUESTION], "chosen": [ANSWER], "rejected": [ANSWER], "images": ["p.png"]},
        {"prompt": [QUESTION], "completion": [ANSWER], "image": "p.png"},
    ],
)  # fmt: skip
def test_rows_of_other_tools_that_are_not_supported_are_rejected(tmp_path: Path, row: Row) -> None:
    assert one(as_lines(tmp_path, row)).problem


def test_rows_of_other_tools_with_images_are_read(tmp_path: Path) -> None:
    factory = {
        "messages": [
            {"content": "<image>Who are they?", "role": "user"},
            {"content": "Two players.", "role": "assistant"},
            {"content": "What do they do?<image>", "role": "user"},
            {"content": "They celebrate.", "role": "assistant"},
        ],
        "images": ["d/1.jpg", "d/1.jpg"],
        "videos": [],
        "audios": None,
    }
    qwen = {
        "image": "d/1.png",
        "conversations": [
            {"from": "human", "value": "How many bars?\n<image>"},
            {"from": "gpt", "value": "6"},
        ],
    }
    openai = {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?", "image_url": None},
                    {"type": "image_url", "image_url": {"url": "d/1.png", "detail": "low"}},
                ],
            },
            {"role": "assistant", "content": "A dog.", "weight": 1},
        ]
    }
    assert said(one(as_lines(tmp_path, factory)))[2] == ("user", "What do they do?|[d/1.jpg]")
    assert said(one(as_list(tmp_path, qwen)))[0] == ("user", "How many bars?|[d/1.png]")
    assert said(one(as_lines(tmp_path, openai)))[0] == ("user", "What is it?|[d/1.png]")


@pytest.mark.parametrize("write", FORMATS)
@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"instruction": "Add.", "input": "1 + 1", "output": "2"}, "`input` holds words of the u"),
        ({"image": "p.png", "input": "How many?", "output": "2"}, "set `columns: {prompt: input}`"),
        ({"question": "Which?", "options": "A. 1 B. 2", "answer": "A"}, "`options` holds choices"),
        ({"question": "Who?", "context": "Ann sings.", "answer": "Ann"}, "`context` holds words"),
        ({"question": "Q?", "A": "x", "B": "y", "C": "", "answer": "B"}, "`A` holds choices"),
        ({"question": "Q?", "option_a": "x", "answer": "B"}, "`option_a` holds choices"),
        ({"question": "Q?", "choiceA": "x", "answer": "B"}, "`choiceA` holds choices"),
        ({"question": "Q?", "option1": "x", "answer": "B"}, "`option1` holds choices"),
        ({"question": "Q?", "opa": "x", "answer": "B"}, "`opa` holds choices"),
        ({"question": "Q?", "candidates": "['x']", "answer": "B"}, "`candidates` holds choices"),
        ({"question": "Q?", "multiple_choices": "x", "answer": "B"}, "`multiple_choices` holds"),
        ({"question": "Q?", "ending0": "x", "answer": "B"}, "`ending0` holds choices"),
        ({"question": "Q?", "article": "It rains.", "answer": "B"}, "`article` holds words"),
        ({"question": "Q?", "document": "It rains.", "answer": "B"}, "`document` holds words"),
        ({"question": "Q?", "story": "It rains.", "answer": "B"}, "`story` holds words"),
        ({"question": "Q?", "inputs": "x", "answer": "B"}, "`inputs` holds words of the user"),
        ({"prompt": "Q?", "completion": "B", "label": "False"}, "is preference data"),
        ({"prompt": "Q?", "completion": "B", "label": "1"}, "is preference data"),
        ({"question": "Q?", "answer": "B", "document": "r.pdf", "A": "x"}, ""),
        ({"question": "Q?", "answer": "B", "multiple_choice_answer": "B"}, ""),
        ({"question": "Q?", "answer": "B", "context_id": "7", "correct_option": "B"}, ""),
        ({"image": "p.png", "text": "A dog.", "label": "1"}, ""),
        ({"instruction": "Add.", "input": "", "output": "2"}, ""),
        ({"question": "Which?", "choices": "[]", "answer": "A"}, ""),
        ({"image": "p.png", "caption": "A dog.", "context": "a walk"}, ""),
    ],
)
def test_words_without_which_an_answer_means_something_else_reject_the_row(
    tmp_path: Path, write: Write, row: Row, problem: str
) -> None:
    read = one(write(tmp_path, row))
    assert problem in read.problem
    assert bool(read.problem) == bool(problem)


def test_an_input_that_is_the_question_is_named_by_columns(tmp_path: Path) -> None:
    row = {"image": "p.png", "input": "How many?", "output": "Two."}
    assert said(one(as_lines(tmp_path, row), columns=Columns(prompt="input"))) == ASKED


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    "image",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{BASE64}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{BASE64}"},
        {"type": "image", "image": f"data:image;base64,{BASE64}"},
        {"image": f"data:image;base64,{BASE64}"},
        {"type": "image", "base64": BASE64},
        {"type": "image", "image": {"bytes": BASE64, "path": None}},
        {"type": "image", "source": {"type": "base64", "media_type": "x", "data": BASE64}},
    ],
)
def test_a_picture_in_a_content_item_is_decoded(tmp_path: Path, write: Write, image: Row) -> None:
    asked = {"role": "user", "content": [image, {"type": "text", "text": "How many?"}]}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Two."}]}
    row = one(write(tmp_path, chat(asked, answer)))
    assert (row.problem, row.ignored, [i.data for i in row.images]) == ("", (), [PIXELS])


@pytest.mark.parametrize("write", [as_lines, as_list])
@pytest.mark.parametrize("path", [None, "p.png"])
def test_base64_in_the_place_of_bytes_is_decoded(
    tmp_path: Path, write: Write, path: str | None
) -> None:
    row = one(write(tmp_path, chat(images=[{"bytes": BASE64, "path": path}])))
    assert [(i.value, i.data, i.problem) for i in row.images] == [(path or "image 1", PIXELS, "")]
    row = one(write(tmp_path, chat(images=[{"bytes": BASE64[:-3] + "!", "path": path}])))
    assert [i.data for i in row.images] == [None]
    assert row.images[0].problem.startswith("broken base64: '!'")


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ({"bytes": [137, 80, 78, 71]}, "`bytes` of an image is a list, expected bytes or base64"),
        (7, "an image is 7, expected a path, base64"),
        (True, "an image is True, expected a path"),
    ],
)
def test_a_value_that_is_no_picture_is_named(tmp_path: Path, image: Any, problem: str) -> None:
    assert problem in one(as_lines(tmp_path, chat(image=image))).problem


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"dialog": [QUESTION, ANSWER]}, "`dialog` holds turns; set `columns: {messages: dialog}`"),
        ({"data": [{"image": "p.png", "text": "A dog."}]}, "`data` holds a list of rows"),
        ({"images": [{"id": 1, "file_name": "p.png"}], "annotations": [{}]}, "COCO's annotations"),
        ({"image": "p.png", "captions": ["A dog."]}, "`columns: {text: NAME}`"),
        ({"url": "https://x.org/p", "text": "A dog."}, "`url` is a web address, which is not fet"),
        (chat(photo="p.png"), "set `columns: {image: photo}` to read it, or remove the row"),
    ],
)
def test_a_row_that_cannot_be_used_says_which_columns_would_help(
    tmp_path: Path, row: Row, problem: str
) -> None:
    assert problem in one(as_lines(tmp_path, row)).problem


@pytest.mark.parametrize("write", FORMATS)
def test_tools_that_are_an_empty_list_of_json_are_none(tmp_path: Path, write: Write) -> None:
    row = one(write(tmp_path, {"question": "How many?", "answer": "Two.", "tools": "[]"}))
    assert (row.problem, row.ignored) == ("", ())


def test_a_cell_of_csv_may_hold_a_list_of_pictures_as_json(tmp_path: Path) -> None:
    row = {"images": json.dumps(["p.png"]), "question": "How many?", "answer": "Two."}
    assert said(one(as_csv(tmp_path, row))) == ASKED


def test_roles_are_known_in_any_case(tmp_path: Path) -> None:
    turns = ({**QUESTION, "role": "User"}, {**ANSWER, "role": "ASSISTANT"})
    assert said(one(as_lines(tmp_path, chat(*turns)))) == said(one(as_lines(tmp_path, chat())))
