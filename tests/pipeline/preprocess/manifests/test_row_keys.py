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

from pipeline.preprocess.manifest import open_manifest, read_manifest
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.stages import Columns
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.tables import needed_columns

Row = Mapping[str, Any]
Write = Callable[[Path, Row], Path]
Read = Callable[..., ManifestRow]


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


def reader(folder: Path, write: Write) -> Read:
    """Return a function that writes a row, and reads it with these `columns`."""

    def read(row: Row, *, asked: str = "", **columns: Any) -> ManifestRow:
        path = write(folder, row)
        (found,) = read_manifest(path, prompt=asked, columns=Columns(**columns))
        return found

    return read


@pytest.fixture
def read_line(tmp_path: Path) -> Read:
    return reader(tmp_path, as_lines)


@pytest.fixture(params=MAPPINGS)
def read(tmp_path: Path, request: pytest.FixtureRequest) -> Read:
    return reader(tmp_path, request.param)


@pytest.fixture(params=FORMATS)
def read_flat(tmp_path: Path, request: pytest.FixtureRequest) -> Read:
    """Read a row without lists, which CSV holds too."""
    return reader(tmp_path, request.param)


def has_problem(row: ManifestRow, problem: str) -> bool:
    """Check whether the row's problem has these words; without words, whether it has none."""
    return problem in row.problem and bool(row.problem) == bool(problem)


def said(row: ManifestRow) -> list[tuple[str, str]]:
    return [
        (m.role, "|".join(f"[{i.value}]" if i.kind == "image" else i.value for i in m.content))
        for m in row.messages
    ]


def user(content: object, **others: object) -> Row:
    return {"role": "user", "content": content, **others}


def assistant(content: object, **others: object) -> Row:
    return {"role": "assistant", "content": content, **others}


def chat(*turns: Row, **others: Any) -> dict[str, Any]:
    return {"messages": list(turns) or [QUESTION, ANSWER], **others}


QUESTION, ANSWER = user("How many?"), assistant("Two.")
TYPED = assistant([{"type": "text", "text": "Two."}])
LLAVA = [{"from": "human", "value": "<image>\nHow many?"}, {"from": "gpt", "value": "Two."}]
PIXELS = b"\x89PNG\r\n\x1a\n" + bytes(60)
BASE64 = base64.b64encode(PIXELS).decode()
ASKED = [("user", "[p.png]|How many?"), ("assistant", "Two.")]
BLIND = "its answer would be learned blind"


NOT_LEARNED = [
    *({key: False} for key in ("loss", "train", "training", "train_on_turn", "has_loss")),
    *({key: 0} for key in ("weight", "loss_mask", "loss_scale", "lossWeight")),
    *({key: True} for key in ("masked", "is_masked")),
    *({"loss_weight": 0.0}, {"weight": "0.0"}, {"weight": "0.00"}, {"loss": False, "weight": 0}),
    *({"Loss": "false"}, {"train": "off"}, {"train": "N"}, {"ignore_loss": "true"}),
]
LEARNED = [
    *({"loss": True}, {"weight": 1}, {"weight": 1.0}, {"masked": False}, {"train": None}),
    {"loss": ""},
]


@pytest.mark.parametrize(
    ("mark", "is_learned"),
    [*((mark, False) for mark in NOT_LEARNED), *((mark, True) for mark in LEARNED)],
    ids=str,
)
def test_a_mark_of_a_turn_says_whether_it_is_learned(
    read: Read, mark: Row, *, is_learned: bool
) -> None:
    row = read(chat({**QUESTION, "training": False}, {**ANSWER, **mark}, QUESTION, ANSWER))
    assert (row.problem, [m.is_learned for m in row.messages][1::2]) == ("", [is_learned, True])
    assert row.ignored == ()


UNSUPPORTED = {
    **dict.fromkeys(("supervised", "learnable", "backprop", "requires_grad", "include"), False),
    "skip": True,
    "unlearned": True,
    "ignore": 1,
    "weights": 0,
    "train_detail": [{"a": 1}],
}


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        ({"weight": 0.5}, "`weight` of a turn is 0.5; allowed are true, fal"),
        ({"loss": "maybe"}, "`loss` of a turn is 'maybe'"),
        ({"loss_scale": 2.0}, "`loss_scale` of a turn is 2.0"),
        ({"loss": True, "weight": 0}, "`loss` and `weight` of a turn contra"),
        ({"mask": True}, "`mask` of a turn may mean either"),
        ({"role": "user", "loss": True}, "`loss` marks a user's turn for training"),
        *(({key: v}, f"`{key}` of a turn is not supported") for key, v in UNSUPPORTED.items()),
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
    read_line: Read, mark: Row, problem: str
) -> None:
    assert problem in read_line(chat(QUESTION, {**ANSWER, **mark}, ANSWER)).problem


CONTENT = {
    "holds video": [
        *({"video": "v.mp4"}, {"videos": ["v.mp4"]}, {"video_path": "v.mp4"}, {"clip": "v.bin"}),
        {"video_url": "https://x.org/v"},
    ],
    "holds audio": [{"audio": {"path": "a.wav", "bytes": None}}, {"audios": ["a.wav"]}],
    "names video or audio": [{"source": "v.webm"}],
    "names a picture": [
        *({"photo": "p.png"}, {"image_1": "p.png"}, {"pixel_values": "AAAA"}),
        *({"scan": "scans/p.TIF"}, {"url": "https://x.org/p.jpg?w=2"}),
    ],
    "holds places": [
        *({"objects": {"bbox": [[1, 2, 3, 4]], "ref": ["dog"]}}, {"bbox": [1, 2, 3, 4]}),
    ],
    "holds tools": [
        *({"tools": [{"name": "look"}]}, {"tools": '[{"name": "look"}]'}),
        {"functions": [{"name": "look"}]},
    ],
    "holds preference": [
        *({"rejected": "No."}, {"rejected_response": "No."}, {"rejected": True}),
        *({"is_rejected": True}, {"chosen": [ANSWER]}, {"chosen": False}),
        *({"kto_tag": "x"}, {"kto_tag": False}, {"label": False}, {"label": "False"}),
    ],
    "holds a thought": [{"reasoning_content": "Hm."}],
    "holds settings": [{"chat_template_kwargs": {"max_pixels": 9}}],
    "of a whole row is not supported": [
        *({"loss": False}, {"loss": "off"}, {"loss_mask": [0, 1]}, {"train": "N"}),
        *({"train": "maybe"}, {"weight": "0"}, {"weight": "0.00"}, {"weight": 0.3}),
        *({"sample_weight": 0.3}, {"masked": "yes"}, {"learnable": False}, {"exclude": 1}),
    ],
    "holds words that the turns do not have": [
        *({"instruction": "Be brief."}, {"persona": "A pirate."}, {"developer": "Be brief."}),
        *({"documents": ["It rains."]}, {"context": "It rains."}),
    ],
}


@pytest.mark.parametrize("write", MAPPINGS)
@pytest.mark.parametrize(
    ("others", "problem"),
    [(others, problem) for problem, rows in CONTENT.items() for others in rows],
    ids=str,
)
def test_a_key_that_holds_content_which_is_not_read_rejects_the_row(
    tmp_path: Path, write: Write, others: Row, problem: str
) -> None:
    read, (key,) = reader(tmp_path, write), others
    assert f"`{key}` {problem}" in read(chat(**others)).problem
    is_media = any(kind in problem for kind in ("video", "audio", "picture"))
    # Tables do not open ignored columns of such names.
    is_unopened = write is as_parquet and key in ("source", "url", "scan")
    allowed = read(chat(**others), ignore=(key,))
    assert has_problem(allowed, BLIND if is_media and not is_unopened else "")
    assert allowed.ignored == ()
    assert read(chat(**others, image="seen.png"), ignore=(key,)).problem == ""
    assert read(chat(**dict.fromkeys(others))).problem == ""


@pytest.mark.parametrize(
    "row",
    [
        {"video": "v.mp4", "question": "What?", "answer": "x"},
        {"image": "p.png", "question": "What?", "answer": "x"},
        {"train_image": "p.png", "question": "What?", "answer": "x"},
        chat(user("What?", clip="v.mp4"), ANSWER),
        chat(user([{"type": "text", "text": "What?", "clip": "v.mp4"}]), TYPED),
    ],
    ids=str,
)
def test_media_cannot_be_ignored_into_a_blind_sample(read: Read, row: Row) -> None:
    assert BLIND in read(row, ignore=("video", "image", "train_image", "clip")).problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("depth", "easy"), ("frame", "Commerce_buy"), ("speech_act", "inform")),
        *(("mask", "none"), ("photo_credit", "A. Nyström")),
    ],
)
def test_an_ignored_key_of_a_text_is_no_media_by_its_name_alone(
    read: Read, key: str, value: str
) -> None:
    assert read(chat(user("What?"), ANSWER, **{key: value}), ignore=(key,)).problem == ""


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"video": "v.mp4", "text": "a cat"}, "`video` holds video"),
        ({"audio": "a.wav", "caption": "a cat"}, "`audio` holds audio"),
        ({"image_pth": "p.png", "text": "a cat"}, "`image_pth` names a picture"),
        ({"loss": False, "text": "a cat"}, "`loss` of a whole row is not supported"),
        # A row that cannot be used says which columns would help.
        ({"dialog": [QUESTION, ANSWER]}, "`dialog` holds turns; set `columns: {messages: dialog}`"),
        ({"data": [{"image": "p.png", "text": "A dog."}]}, "`data` holds a list of rows"),
        ({"images": [{"id": 1, "file_name": "p.png"}], "annotations": [{}]}, "COCO's annotations"),
        ({"image": "p.png", "gold_answers": ["A dog."]}, "`gold_answers` is a list of answers"),
        ({"url": "https://x.org/p", "text": "A dog."}, "`url` is a web address, which is not fet"),
        (chat(photo="p.png"), "set `columns: {image: photo}` to read it, or remove the row"),
        # A value that is not a picture.
        (chat(image={"bytes": [137]}), "`bytes` of an image is a list, expected bytes or base64"),
        (chat(image=7), "an image is 7, expected a path, base64"),
        (chat(image=True), "an image is True, expected a path"),
    ],
    ids=str,
)
def test_a_row_that_cannot_be_used_names_the_key_and_the_remedy(
    read_line: Read, row: Row, problem: str
) -> None:
    assert problem in read_line(row).problem


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("tool_calls", [{"name": "look"}], "holds tools"),
        ("function_call", {"name": "look"}, "holds tools"),
        *((key, "Hm.", "holds a thought") for key in ("reasoning_content", "thinking")),
        *((key, "p.png", "names a picture") for key in ("image", "attachment")),
        ("images", ["p.png"], "names a picture"),
        ("audio", {"id": "x"}, "holds audio"),
        ("chosen", True, "holds preference"),
        ("context", "It rains.", "of a turn holds words that are not read"),
    ],
)
def test_a_key_of_a_turn_that_holds_content_rejects_the_row(
    read: Read, key: str, value: object, problem: str
) -> None:
    assert f"`{key}` {problem}" in read(chat(QUESTION, {**ANSWER, key: value})).problem


MARKS = [
    *("<image_1>", "<image 1>", "<Image>", "<image/>", "<|image_1|>", "<|video_pad|>", "[IMG]"),
    *("<IMAGE_TOKEN>", "<IMG_CONTEXT>", "<start_of_image>", "<image_soft_token>", "[image]"),
    *("<images>", "<picture>", "< image >", "<video_1>", "<video>"),
]


@pytest.mark.parametrize("has_image", [False, True])
@pytest.mark.parametrize(
    ("text", "mark"),
    [
        *((f"{mark}\nWhat is it?", mark) for mark in MARKS),
        ("<video><audio>What happens?", "<video>"),
        ("What happens?\n<video>", "<video>"),
        ("Which of <video> and <video> is longer?", "<video>"),
        ("Is <audio> louder than before?", "<audio>"),
        ("Where is <ref-object>?", "<ref-object>"),
        ("What is in <bbox>?", "<bbox>"),
        ("What is in {image}?", "{image}"),
        ("Compare <Image> with that.", "<Image>"),
        ("Picture 1: <img>p.png</img>\nWhat is it?", "<img>"),
        ("(<image>./</image>)\nWhat is it?", "</image>"),
        ("<im_start><im_patch><im_end>What is it?", "<im_start>"),
        ("<|vision_start|><|image_pad|>What is it?", "<|vision_start|>"),
        ("<image> compare with <video> now", "<video>"),
    ],
)
def test_a_mark_for_media_that_are_not_read_rejects_the_row(
    read_line: Read, text: str, mark: str, *, has_image: bool
) -> None:
    others = {"image": "p.png"} if has_image or "<image>" in text else {}
    assert f"mark {mark}" in read_line(chat(user(text), ANSWER, **others)).problem


@pytest.mark.parametrize(
    "text",
    [
        "Do the <video> and <audio> elements need an end?",
        *("Why does the tag <video> not play?", "Is `<video>` better than `<audio>` here?"),
        "Does HTML know <picture> and <video>, or not?",
        "See ![image](a.svg) and [image](b) there.",
        *('Why does f"{image}" print None in Python?', "How do I write a <video> tag?"),
        "Does an <Image> tag of React need an end?",
        "<video src='a.mp4'></video> does not play",
        "<video>\n<source src='a'>\n</video> does not play",
        *("Box: <bbox>1, 2, 3, 4</bbox>?", "Is 1 <2> 3?"),
    ],
)
def test_a_text_about_markup_is_no_mark(read_line: Read, text: str) -> None:
    assert read_line(chat(user(text), ANSWER)).problem == ""


def test_unknown_keys_are_named_and_metadata_is_not(read: Read) -> None:
    turns = [QUESTION, {**ANSWER, "mood": "glad", "id": "t1", "turn_id": 0, "num_words": 1}]
    others = {"difficulty": "hard", "score": 3, "is_safe": True, "instruction": "How\nmany?"}
    others |= {"weight_kg": 5.2, "train_id": 0, "ignored_words": ["a"], "document_id": "d1"}
    row = read(chat(*turns, **others, source="coco", void=""))
    assert row.problem == ""
    assert set(row.ignored) == {"messages[].mood", "messages[].num_words", *others}


@pytest.mark.parametrize(
    "key", ["system", "system_prompt", "System Prompt", "systemPrompt", "system_message", "sys"]
)
def test_a_rows_system_message_comes_first(read: Read, key: str) -> None:
    def with_turn(content: str) -> ManifestRow:
        system = {"role": "system", "content": content}
        return read(chat(system, QUESTION, ANSWER, **{key: "Be brief."}))

    expected = [("system", "Be brief."), ("user", "How many?"), ("assistant", "Two.")]
    assert said(read(chat(**{key: "Be brief."}))) == expected
    assert said(with_turn("Be brief.")) == said(with_turn("")) == expected
    assert "`system` is 'Be brief.', and a turn of the system" in with_turn("Be long.").problem
    assert said(read(chat(**{key: None}))) == expected[1:]


PAIR = {"user": "q", "assistant": "a"}


@pytest.mark.parametrize(
    ("column", "turns", "problem"),
    [
        ("texts", [{"system": "S", **PAIR}], ""),
        ("messages", [{**QUESTION, "system": "S"}, ANSWER], ""),
        ("messages", [{**QUESTION, "system_prompt": "S"}, ANSWER], ""),
        ("texts", [PAIR, {"system": "S", **PAIR}], "`system` of a turn is read only in the first"),
        ("messages", [QUESTION, {**ANSWER, "system": "S"}], "`system` of a turn is read only in"),
    ],
)
def test_a_system_message_in_the_first_turn_comes_first(
    read: Read, column: str, turns: list[Row], problem: str
) -> None:
    row = read({column: turns})
    assert has_problem(row, problem)
    assert problem or (said(row)[0], len(said(row))) == (("system", "S"), 3)
    other = read({column: turns, "system": "T"})
    assert problem or "`system` is 'T', and a turn of the system 'S'" in other.problem


IMAGE_KEYS = [
    *("image", "images", "image_path", "image_paths", "image_file", "img", "img_path", "image_url"),
    *("file_name", "filename", "path", "Image", "IMAGE_PATH", "image-path"),
    *("imagePath", "imageUrl", "image_filepath", "img_file"),
]


@pytest.mark.parametrize("key", IMAGE_KEYS)
def test_common_names_of_a_picture_are_read(read: Read, key: str) -> None:
    assert said(read(chat(**{key: "p.png"}))) == ASKED
    assert said(read({"conversations": LLAVA, key: "p.png"})) == ASKED
    caption = read({key: "p.png", "caption": "Two."}, asked="How many?")
    assert said(caption) == ASKED


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
    ids=str,
)
def test_pictures_under_two_names_must_agree(read: Read, keys: Row, problem: str) -> None:
    row = read(chat(**keys))
    assert has_problem(row, problem)
    assert problem or said(row)[0] == ("user", f"[{keys['image']}]|How many?")


def test_bytes_are_taken_where_another_column_has_the_name(tmp_path: Path) -> None:
    read = reader(tmp_path, as_parquet)
    row = read(chat(image={"bytes": b"1", "path": None}, file_name="p.png"))
    assert [image.data for image in row.images] == [b"1"]


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"messages": None, "conversations": LLAVA}, {}),
        ({"messages": [], "conversations": LLAVA}, {}),
        ({"conversations": None, "texts": [{"user": "How many?", "assistant": "Two."}]}, {}),
        ({"messages": None, "conversations": None, "question": "How many?", "answer": "Two."}, {}),
        (chat({**QUESTION, "role": "User"}, {**ANSWER, "role": "ASSISTANT"}), {}),
        ({"talk": LLAVA}, {"messages": "talk"}),
        ({"input": "How many?", "output": "Two."}, {"prompt": "input"}),
    ],
    ids=str,
)
def test_the_first_column_of_words_that_is_named_or_not_null_is_read(
    read: Read, row: Row, columns: Row
) -> None:
    assert said(read({"image": "p.png", **row}, **columns)) == ASKED


@pytest.mark.parametrize("asked", ["prompt", "question", "query", "instruction"])
@pytest.mark.parametrize("answered", ["text", "answer", "response", "output", "completion"])
def test_a_question_and_its_answer_are_read(read_flat: Read, asked: str, answered: str) -> None:
    row = {asked: "How many?", answered: "Two."}
    assert said(read_flat({"image": "p.png", **row})) == ASKED
    marked = {"image": "p.png", **row, asked: "How many?\n<image>"}
    assert said(read_flat(marked))[0] == ("user", "How many?|[p.png]")
    assert said(read_flat(row))[0] == ("user", "How many?")


def test_an_answer_that_two_columns_could_be_needs_columns(read_flat: Read) -> None:
    row = {"image": "p.png", "text": "A dog.", "caption": "A cat."}
    problem = "`text` and `caption` differ, and each could be the assistant's answer; set `columns:"
    assert problem in read_flat(row).problem
    named = read_flat(row, text="caption")
    assert (said(named)[-1], named.ignored) == (("assistant", "A cat."), ("text",))


def test_columns_name_what_holds_what(read_flat: Read) -> None:
    row = {"snap": "p.png", "wish": "How many?", "words": "Two.", "tone": "Be brief."}
    found = read_flat(row, image="snap", text="words", prompt="wish", system="tone")
    assert said(found) == [("system", "Be brief."), *ASKED]


def test_the_answer_that_columns_names_is_read_where_a_row_has_turns_too(read: Read) -> None:
    row = chat(image="p.png", caption="A cat.", wish="What?", conversations=LLAVA)
    turns = ("messages", "conversations")
    for ignore, ignored in (((), turns), (turns, ())):
        found = read(row, text="caption", prompt="wish", ignore=ignore)
        assert said(found) == [("user", "[p.png]|What?"), ("assistant", "A cat.")]
        assert found.ignored == ignored


PHOTO = {"image": "photo"}


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
        (chat(image="p.png", photo=None), PHOTO, "is empty, but `image` is not; write its picture"),
        (chat(image={"path": "p.png", "bytes": None}, photo=None), PHOTO, "but `image` is not"),
        (chat(file_name="p.png", photo=None), PHOTO, "but `file_name` is not"),
        ({"wish": None, "question": "Q?", "answer": "A"}, {"prompt": "wish"}, "but `question` is"),
        (chat(tone=None, system="Be brief."), {"system": "tone"}, "but `system` is not"),
        (chat(image=None, photo=None), PHOTO, ""),
        (chat(image="p.png", photo="q.png"), PHOTO, ""),
        (chat(image="p.png", photo=None), {**PHOTO, "ignore": ("image",)}, BLIND),
    ],
    ids=str,
)
def test_a_replaced_column_is_not_dropped_if_the_named_one_is_empty(
    read: Read, row: Row, columns: dict[str, Any], problem: str
) -> None:
    assert has_problem(read(row, **columns), problem)


def numbered(*indices: Any, key: str = "index") -> Row:
    images = [{key: index, "type": "image", "text": None} for index in indices]
    return user([*images, {key: None, "type": "text", "text": "Which?"}])


@pytest.mark.parametrize(
    ("turns", "shown"),
    [
        ([numbered(1, 0), TYPED], ["b.jpg", "a.jpg"]),
        ([numbered(0, 1), TYPED], ["a.jpg", "b.jpg"]),
        ([numbered(1), TYPED, numbered(0, 1), TYPED], ["b.jpg", "a.jpg", "b.jpg"]),
        ([numbered(1.0, 0.0), TYPED], ["b.jpg", "a.jpg"]),
        *(
            ([numbered(1, 0, key=key), TYPED], ["b.jpg", "a.jpg"])
            for key in ("image_index", "imageIndex", "idx", "img_idx")
        ),
        ([numbered(1, 2), TYPED], "`index` of an image is 2, but 2 are listed, counted from 0"),
        ([numbered(-1, 0), TYPED], "`index` of an image is -1"),
        ([numbered(1, 1), TYPED], "no place for an image has the `index` 0 of 2 listed"),
        ([numbered(1, None), TYPED], "1 of 2 places for images have an `index`, expected all"),
        ([numbered("1", "0"), TYPED], "of an image is '1', expected a number from 0"),
    ],
)
def test_an_image_item_with_an_index_shows_that_image_of_the_row(
    read: Read, turns: list[Row], shown: list[str] | str
) -> None:
    row = read(chat(*turns, images=["a.jpg", "b.jpg"]))
    if isinstance(shown, str):
        assert shown in row.problem
    else:
        assert (row.problem, [image.value for image in row.images]) == ("", shown)
        assert row.ignored == ()


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ({"index": 1}, "in `images`: `index` of image 0 is 1: list them in ord"),
        ({"bbox": [1, 2, 3, 4]}, "in `images`: `bbox` holds places"),
        ({"mask": "m.png"}, "in `images`: `mask` names a picture"),
        ({"index": 0, "width": 9, "id": 7, "bytes": None}, ""),
        ({"mood": "glad"}, ""),
    ],
    ids=str,
)
def test_a_key_of_a_listed_image_is_not_dropped_unseen(
    read: Read, others: Row, problem: str
) -> None:
    row = read(chat(images=[{"path": "b.jpg", **others}]))
    assert has_problem(row, problem)
    assert row.ignored == (("images[].mood",) if "mood" in others else ())


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["p.png"]).dictionary_encode(),
        *(pa.array(["p.png"], kind) for kind in (pa.large_string(), pa.string_view())),
        *(pa.array([PIXELS], kind) for kind in (pa.binary_view(), pa.binary(len(PIXELS)))),
        pa.array([[("front", "p.png")]], pa.map_(pa.string(), pa.string())),
        pa.array([["p.png"]], pa.list_(pa.string(), 1)),
        pa.array([[None, None, None, "p.png"]]),
    ],
    ids=lambda values: str(values.type)[:12],
)
def test_a_picture_in_a_column_of_any_type_is_seen(tmp_path: Path, values: pa.Array) -> None:
    table = pa.table({"messages": [[QUESTION, ANSWER]], "scan": values, "width": [3]})
    assert needed_columns(table.schema, RowOptions()) == ["messages", "scan"]
    try:
        pq.write_table(table, tmp_path / "m.parquet")
    except pa.ArrowException:
        pytest.skip("this pyarrow writes no such column to Parquet")
    (row,) = read_manifest(tmp_path / "m.parquet")
    assert "`scan` names a picture" in row.problem


@pytest.mark.parametrize("write", [as_parquet, as_csv])
def test_a_column_that_does_not_exist_is_refused_with_those_that_do(
    tmp_path: Path, write: Write
) -> None:
    words = r"no column `pictures`, which `columns\.image` names; did you mean `picture`\? found: "
    with pytest.raises(StageConfigError, match=words):
        reader(tmp_path, write)({"picture": "p.png", "text": "A dog."}, image="pictures")


@pytest.mark.parametrize("write", FORMATS)
def test_two_keys_of_columns_that_name_one_column_are_refused(tmp_path: Path, write: Write) -> None:
    read, row = reader(tmp_path, write), {"image": "p.png", "words": "A dog."}
    if write in (as_parquet, as_csv):
        with pytest.raises(StageConfigError, match="name the same column, `words`"):
            read(row, image="words", text="words")
    else:
        assert read(row, image="words", text="words").problem


def test_a_csv_without_names_of_columns_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("photos/1.jpg,a dog\nphotos/2.jpg,a cat\n")
    with pytest.raises(StageConfigError, match="The first line must name the columns"):
        read_manifest(tmp_path / "m.csv")


@pytest.mark.parametrize(
    "row",
    [
        {"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": "f"},
                           {"from": "observation", "value": "o"}, {"from": "gpt", "value": "a"}]},
        chat(QUESTION, assistant(None, tool_calls=[{"function": {"name": "f"}}]),
             {"role": "tool", "content": "Sunny"}, ANSWER),
        chat(user([{"type": "video", "path": "v.mp4"}]), ANSWER),
        {"prompt": [QUESTION], "chosen": [ANSWER], "rejected": [ANSWER], "images": ["p.png"]},
    ],
    ids=str,
)  # fmt: skip
def test_rows_of_other_tools_that_are_not_supported_are_rejected(read_line: Read, row: Row) -> None:
    assert read_line(row).problem


@pytest.mark.parametrize(
    ("row", "turn"),
    [
        ({"messages": [user("<image>Who are they?"), assistant("Two players."),
                       user("What do they do?<image>"), assistant("They celebrate.")],
          "images": ["d/1.jpg", "d/1.jpg"], "videos": [], "audios": None},
         "What do they do?|[d/1.jpg]"),
        ({"image": "d/1.png", "conversations": [{"from": "human", "value": "How many?\n<image>"},
                                                {"from": "gpt", "value": "6"}]},
         "How many?|[d/1.png]"),
        (chat(user([{"type": "text", "text": "What is it?", "image_url": None},
                    {"type": "image_url", "image_url": {"url": "d/1.png", "detail": "low"}}]),
              assistant("A dog.", weight=1)),
         "What is it?|[d/1.png]"),
    ],
    ids=["LLaMA-Factory", "Qwen", "OpenAI"],
)  # fmt: skip
def test_rows_of_other_tools_with_images_are_read(read_line: Read, row: Row, turn: str) -> None:
    assert said(read_line(row))[-2] == ("user", turn)


OTHER_TOOLS = {
    "Alpaca": {"instruction": "How", "input": "many?", "output": "Two."},
    "ms-swift's problem": {"problem": "How\nmany?", "solution": "Two."},
    "ms-swift's pairs": {"conversation": [{"human": "How\nmany?", "assistant": "Two."}]},
    "TRL": {"prompt": [user("How\nmany?")], "completion": [ANSWER]},
    "VQA": {
        "question": "How\nmany?",
        "answers": [{"answer": "1"}, {"answer": "Two."}],
        "multiple_choice_answer": "Two.",
    },
    "TextVQA": {"question": "How\nmany?", "answers": ["1", "Two.", "Two."]},
    "LLaMA-Factory v1": chat(
        user([{"type": "image_url", "value": "p.png"}, {"type": "text", "value": "How\nmany?"}]),
        assistant([{"type": "text", "value": "Two."}], loss_weight=1.0),
    ),
}


@pytest.mark.parametrize("row", OTHER_TOOLS.values(), ids=OTHER_TOOLS)
def test_rows_of_other_tools_are_read_from_each_format(read: Read, row: Row) -> None:
    others = {} if "messages" in row else {"image": "p.png"}
    assert said(read({**row, **others})) == [
        ("user", "[p.png]|How\nmany?"),
        ("assistant", "Two."),
    ]


def test_rows_of_other_tools_without_lists_are_read_from_csv(tmp_path: Path) -> None:
    read = reader(tmp_path, as_csv)
    asked = {"instruction": "How", "input": "many?", "output": "Two."}
    asked["history"] = json.dumps([["Hello?", "Hi."]])
    assert [text for _, text in said(read(asked))] == ["Hello?", "Hi.", "How\nmany?", "Two."]
    assert said(read({"problem": "How many?", "solution": "Two."}))[0] == ("user", "How many?")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"instruction": "Double it.", "input": 3, "output": "6"}, "`input` is a number"),
        ({"problem": "How many?", "solution": 2}, "`solution` is a number"),
        ({"problem": 7, "answer": "Two."}, "`problem` is a number"),
    ],
)
def test_numbers_in_the_place_of_words_are_seen_in_each_format(
    read: Read, row: Row, problem: str
) -> None:
    assert problem in read(row).problem


def test_a_change_of_a_list_of_answers_changes_the_manifest(tmp_path: Path) -> None:
    fingerprints = set()
    for answers in (["cat", "dog"], ["dog", "cat"]):
        row = {"image": "p.png", "question": "What?", "answers": answers}
        fingerprints.add(open_manifest(as_parquet(tmp_path, row)).fingerprint)
    assert len(fingerprints) == 2


QUIZ = {"question": "Q?", "answer": "B"}
CHOICES = {
    **dict.fromkeys(("options", "option_a", "choiceA", "option1", "opa"), "holds choices"),
    **dict.fromkeys(("candidates", "multiple_choices", "ending0"), "holds choices"),
    **dict.fromkeys(("article", "document", "story", "context"), "holds words"),
    "inputs": "holds words of the user",
}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"question": "Add.", "input": "1 + 1", "output": "2"}, "`input` holds words of the user"),
        ({"image": "p.png", "input": "How many?", "output": "2"}, "set `columns: {prompt: input}`"),
        ({"question": "Q?", "A": "x", "B": "y", "C": "", "answer": "B"}, "`A` holds choices"),
        *(({**QUIZ, key: "It rains."}, f"`{key}` {what}") for key, what in CHOICES.items()),
        ({"prompt": "Q?", "completion": "B", "label": "False"}, "is preference data"),
        ({"prompt": "Q?", "completion": "B", "label": "1"}, "is preference data"),
        ({**QUIZ, "document": "r.pdf", "A": "x"}, ""),
        ({**QUIZ, "multiple_choice_answer": "B"}, ""),
        ({**QUIZ, "context_id": "7", "correct_option": "B"}, ""),
        ({"image": "p.png", "text": "A dog.", "label": "1"}, ""),
        ({"instruction": "Add.", "input": "", "output": "2"}, ""),
        ({"question": "Which?", "choices": "[]", "answer": "A"}, ""),
        ({"image": "p.png", "caption": "A dog.", "context": "a walk"}, ""),
        ({**QUIZ, "tools": "[]"}, ""),
    ],
    ids=str,
)
def test_words_without_which_an_answer_means_something_else_reject_the_row(
    read_flat: Read, row: Row, problem: str
) -> None:
    found = read_flat(row)
    assert has_problem(found, problem)
    assert "tools" not in found.ignored


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
def test_a_picture_in_a_content_item_is_decoded(read: Read, image: Row) -> None:
    row = read(chat(user([image, {"type": "text", "text": "How many?"}]), TYPED))
    assert (row.problem, row.ignored, [i.data for i in row.images]) == ("", (), [PIXELS])


@pytest.mark.parametrize("write", [as_lines, as_list])
@pytest.mark.parametrize("path", [None, "p.png"])
def test_base64_in_the_place_of_bytes_is_decoded(
    tmp_path: Path, write: Write, path: str | None
) -> None:
    read = reader(tmp_path, write)
    (image,) = read(chat(images=[{"bytes": BASE64, "path": path}])).images
    assert (image.value, image.data, image.problem) == (path or "image 1", PIXELS, "")
    (broken,) = read(chat(images=[{"bytes": BASE64[:-3] + "!", "path": path}])).images
    assert broken.data is None
    assert broken.problem.startswith("broken base64: '!'")


def test_a_cell_of_csv_may_hold_a_list_of_pictures_as_json(tmp_path: Path) -> None:
    row = {"images": json.dumps(["p.png"]), "question": "How many?", "answer": "Two."}
    assert said(reader(tmp_path, as_csv)(row)) == ASKED
