"""A small data set in the format of each tool, with the answers that are learned of its rows."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.webdataset_tars import write_energon, write_tar

COLOURS = ("red", "green", "blue")
_TRAIN = "train-00000-of-00001.parquet"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolData:
    """A data set of a tool."""

    tool: str
    """Tool that documents the format."""
    learned: Sequence[Sequence[str]]
    """Learned answers of each row, in the order of the rows."""
    data: str
    """What `--data` names, below the folder."""
    file: str = ""
    """File of the rows; empty where it is the same."""


def picture(number: int) -> bytes:
    """A PNG of one colour."""
    stream = io.BytesIO()
    Image.new("RGB", (84, 56), COLOURS[number]).save(stream, "PNG")
    return stream.getvalue()


def _save_pictures(folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for number, colour in enumerate(COLOURS):
        (folder / f"{colour}.png").write_bytes(picture(number))
        names.append(f"{colour}.png")
    return names


def _write(path: Path, rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        path.write_text(json.dumps(rows))


def _turns(
    *texts: str, names: tuple[str, str, str, str] = ("role", "content", "user", "assistant")
):
    role, content, user, assistant = names
    return [
        {role: assistant if place % 2 else user, content: text} for place, text in enumerate(texts)
    ]


_FROM = ("from", "value", "human", "gpt")
_CHATS = (
    ("<image>Which colour?", "It is red."),
    ("<image><image>Are these alike?", "No.", "Why not?", "One is blue."),
    ("Name a colour.", "Green."),
)
"""Turns of three rows: with one picture, with two, and with none."""
_ANSWERS = (("It is red.",), ("No.", "One is blue."), ("Green.",))
_PICTURES = ((0,), (1, 2), ())


def _chat_rows(turns: str, pictures: str, names: tuple[str, str, str, str]) -> list[dict[str, Any]]:
    rows = []
    for texts, shown in zip(_CHATS, _PICTURES, strict=True):
        row: dict[str, Any] = {turns: _turns(*texts, names=names)}
        row[pictures] = [f"images/{COLOURS[number]}.png" for number in shown]
        rows.append(row)
    return rows


def llama_factory_sharegpt(folder: Path) -> ToolData:
    """`conversations` of `from` and `value`, which are LLaMA-Factory's defaults."""
    _save_pictures(folder / "images")
    rows = _chat_rows("conversations", "images", _FROM)
    rows[2]["system"] = "Be brief."
    _write(folder / "rows.json", rows)
    columns = {"messages": "conversations", "images": "images", "system": "system"}
    listed = {"file_name": "rows.json", "formatting": "sharegpt", "columns": columns}
    _write(folder / "dataset_info.json", {"mine": listed})
    return ToolData(tool="LLaMA-Factory", learned=_ANSWERS, data=".", file="rows.json")


def llama_factory_messages(folder: Path) -> ToolData:
    """The layout of LLaMA-Factory's `mllm_demo`, with a further column that has our name."""
    _save_pictures(folder / "images")
    rows = _chat_rows("messages", "images", ("role", "content", "user", "assistant"))
    for row in rows[:2]:
        row["image"] = "scan-of-the-page.png"  # not named, so not read
    _write(folder / "rows.json", rows)
    listed = {
        "file_name": "rows.json",
        "formatting": "sharegpt",
        "columns": {"messages": "messages", "images": "images"},
        "tags": {
            "role_tag": "role",
            "content_tag": "content",
            "user_tag": "user",
            "assistant_tag": "assistant",
        },
    }
    _write(folder / "dataset_info.json", {"mine": listed})
    return ToolData(tool="LLaMA-Factory", learned=_ANSWERS, data=".", file="rows.json")


def llama_factory_alpaca(folder: Path) -> ToolData:
    """`instruction`, `input`, `output` and `history`, with pictures."""
    _save_pictures(folder / "images")
    rows = [
        {
            "instruction": "<image>Which colour?",
            "input": "Answer in a sentence.",
            "output": "It is red.",
            "images": ["images/red.png"],
        },
        {
            "instruction": "And this one?",
            "input": "",
            "output": "Blue.",
            "history": [["<image>Which colour is the first?", "Green."]],
            "images": ["images/green.png"],
        },
    ]
    _write(folder / "rows.json", rows)
    columns = {
        "prompt": "instruction",
        "query": "input",
        "response": "output",
        "history": "history",
        "images": "images",
    }
    _write(folder / "dataset_info.json", {"mine": {"file_name": "rows.json", "columns": columns}})
    learned = (("It is red.",), ("Green.", "Blue."))
    return ToolData(tool="LLaMA-Factory", learned=learned, data=".", file="rows.json")


def ms_swift_messages(folder: Path) -> ToolData:
    """`messages` whose `loss` says what is learned."""
    _save_pictures(folder / "images")
    rows = _chat_rows("messages", "images", ("role", "content", "user", "assistant"))
    rows[1]["messages"][1]["loss"] = False
    rows[1]["messages"][3]["loss"] = True
    _write(folder / "rows.jsonl", rows)
    learned = (_ANSWERS[0], ("One is blue.",), _ANSWERS[2])
    return ToolData(tool="ms-swift", learned=learned, data="rows.jsonl")


def ms_swift_query(folder: Path) -> ToolData:
    """`query`, `response`, `history` and `system`; without a mark the picture comes first."""
    _save_pictures(folder / "images")
    rows = [
        {"query": "Which colour?", "response": "It is red.", "images": ["images/red.png"]},
        {
            "system": "Be brief.",
            "query": "And this one?",
            "response": "Blue.",
            "history": [["<image>Which colour is the first?", "Green."]],
            "images": ["images/green.png"],
        },
    ]
    _write(folder / "rows.jsonl", rows)
    learned = (("It is red.",), ("Green.", "Blue."))
    return ToolData(tool="ms-swift", learned=learned, data="rows.jsonl")


def ms_swift_conversation(folder: Path) -> ToolData:
    """`conversation`, pairs of `human` and `assistant`."""
    _save_pictures(folder / "images")
    rows = []
    for texts, shown in zip(_CHATS, _PICTURES, strict=True):
        asked, answers = texts[::2], texts[1::2]
        pairs = [
            {"human": question, "assistant": answer}
            for question, answer in zip(asked, answers, strict=True)
        ]
        images = [f"images/{COLOURS[number]}.png" for number in shown]
        rows.append({"conversation": pairs, "images": images})
    _write(folder / "rows.jsonl", rows)
    return ToolData(tool="ms-swift", learned=_ANSWERS, data="rows.jsonl")


def _parts(text: str, num_pictures: int) -> list[dict[str, str]]:
    return [*[{"type": "image"}] * num_pictures, {"type": "text", "text": text}]


def trl_prompt_completion(folder: Path) -> ToolData:
    """TRL's lists `prompt` and `completion`: only the completion is learned."""
    _save_pictures(folder / "images")
    rows = [
        {
            "images": ["images/red.png"],
            "prompt": [{"role": "user", "content": _parts("Which colour?", 1)}],
            "completion": [{"role": "assistant", "content": _parts("It is red.", 0)}],
        },
        {
            "images": ["images/green.png", "images/blue.png"],
            "prompt": [
                {"role": "user", "content": _parts("Are these alike?", 2)},
                {"role": "assistant", "content": _parts("No.", 0)},
                {"role": "user", "content": _parts("Why not?", 0)},
            ],
            "completion": [{"role": "assistant", "content": _parts("One is blue.", 0)}],
        },
    ]
    _write(folder / "rows.jsonl", rows)
    return ToolData(tool="TRL", learned=(("It is red.",), ("One is blue.",)), data="rows.jsonl")


def trl_messages(folder: Path) -> ToolData:
    """TRL's `messages` with parts, of which TRL itself learns every token."""
    _save_pictures(folder / "images")
    rows = []
    for texts, shown in zip(_CHATS[:2], _PICTURES[:2], strict=True):
        messages = []
        for place, text in enumerate(texts):
            count = text.count("<image>")
            role = "assistant" if place % 2 else "user"
            content = _parts(text.replace("<image>", ""), count)
            messages.append({"role": role, "content": content})
        images = [f"images/{COLOURS[number]}.png" for number in shown]
        rows.append({"messages": messages, "images": images})
    _write(folder / "rows.jsonl", rows)
    return ToolData(tool="TRL", learned=_ANSWERS[:2], data="rows.jsonl")


def axolotl_messages(folder: Path) -> ToolData:
    """`messages` whose parts name the files of pictures."""
    names = _save_pictures(folder / "images")
    rows = []
    for number, name in enumerate(names[:2]):
        shown = {"type": "image", "path": str(folder / "images" / name)}
        asked = [shown, {"type": "text", "text": "Which colour?"}]
        answer = [{"type": "text", "text": f"It is {COLOURS[number]}."}]
        messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
        rows.append({"messages": messages})
    _write(folder / "rows.jsonl", rows)
    learned = [(f"It is {colour}.",) for colour in COLOURS[:2]]
    return ToolData(tool="axolotl", learned=learned, data="rows.jsonl")


def llava(folder: Path) -> ToolData:
    """LLaVA's JSON: `id`, `image`, `conversations`, with the pictures in a folder next to it."""
    _save_pictures(folder / "images")
    rows = []
    for number, (texts, shown) in enumerate(zip(_CHATS[::2], _PICTURES[::2], strict=True)):
        row: dict[str, Any] = {"id": str(number), "conversations": _turns(*texts, names=_FROM)}
        if shown:
            row["image"] = f"{COLOURS[shown[0]]}.png"
        rows.append(row)
    _write(folder / "rows.json", rows)
    return ToolData(tool="LLaVA", learned=_ANSWERS[::2], data="rows.json")


def qwen_vl(folder: Path) -> ToolData:
    """Rows of Qwen's own scripts: `image` is a name or a list."""
    _save_pictures(folder / "images")
    rows = []
    for texts, shown in zip(_CHATS[:2], _PICTURES[:2], strict=True):
        names = [f"images/{COLOURS[number]}.png" for number in shown]
        image: Any = names[0] if len(names) == 1 else names
        rows.append({"image": image, "conversations": _turns(*texts, names=_FROM)})
    _write(folder / "rows.json", rows)
    return ToolData(tool="Qwen-VL", learned=_ANSWERS[:2], data="rows.json")


def intern_vl(folder: Path) -> ToolData:
    """A meta file of InternVL; a row without a picture has an empty name."""
    names = _save_pictures(folder / "images")
    rows = [
        {"image": names[0], "conversations": _turns(*_CHATS[0], names=_FROM)},
        {"image": "", "conversations": _turns(*_CHATS[2], names=_FROM)},
    ]
    _write(folder / "ann/rows.jsonl", rows)
    listed = {"root": "images", "annotation": "ann/rows.jsonl", "repeat_time": 1, "length": 2}
    _write(folder / "meta.json", {"mine": listed})
    return ToolData(tool="InternVL", learned=_ANSWERS[::2], data="meta.json")


def automodel(folder: Path) -> ToolData:
    """A meta file of NeMo Automodel."""
    _save_pictures(folder / "media")
    rows = _chat_rows("messages", "images", ("role", "content", "user", "assistant"))
    for row in rows:
        row["images"] = [Path(name).name for name in row["images"]]
    _write(folder / "rows.jsonl", rows)
    listed = {
        "file_name": "rows.jsonl",
        "media_dir": "media",
        "columns": {"messages": "messages", "images": "images"},
        "tags": {"role_tag": "role", "content_tag": "content"},
        "sample_ratio": 1.0,
    }
    _write(folder / "meta.json", {"mine": listed})
    return ToolData(tool="Automodel", learned=_ANSWERS, data="meta.json")


def energon(folder: Path) -> ToolData:
    """Tars that `energon prepare` described: a question, its answer, a picture."""
    members: dict[str, bytes | Mapping[str, Any]] = {}
    for number, colour in enumerate(COLOURS):
        members[f"{number}.png"] = picture(number)
        members[f"{number}.json"] = {"question": "Which colour?", "answer": f"It is {colour}."}
    write_tar(folder / "parts" / "0.tar", members)
    sample = {"__module__": "megatron.energon", "__class__": "VQASample"}
    fields = {"image": "png", "context": "json[question]", "answers": "json[answer]"}
    split = {"split_parts": {"train": ["parts/0.tar"]}}
    write_energon(folder, split, sample_type=sample, field_map=fields)
    learned = [(f"It is {colour}.",) for colour in COLOURS]
    return ToolData(tool="Energon", learned=learned, data=".")


def img2dataset(folder: Path) -> ToolData:
    """Tars of img2dataset, with the Parquet file that it writes next to each."""
    members: dict[str, bytes | str | Mapping[str, Any]] = {}
    for number, colour in enumerate(COLOURS):
        key = f"{number:09}"
        caption = f"a {colour} card"
        members[f"{key}.png"] = picture(number)
        members[f"{key}.txt"] = caption
        members[f"{key}.json"] = {"caption": caption, "url": "https://x.org/a", "key": key}
    write_tar(folder / "00000.tar", members)
    pq.write_table(pa.table({"url": ["https://x.org/a"]}), folder / "00000.parquet")
    (folder / "00000_stats.json").write_text('{"successes": 3}')
    learned = [(f"a {colour} card",) for colour in COLOURS]
    return ToolData(tool="img2dataset", learned=learned, data=".")


def image_folder(folder: Path) -> ToolData:
    """Hugging Face's ImageFolder with `metadata.jsonl`."""
    names = _save_pictures(folder)
    rows = [
        {"file_name": name, "text": f"a {colour} card"}
        for name, colour in zip(names, COLOURS, strict=True)
    ]
    _write(folder / "metadata.jsonl", rows)
    return ToolData(
        tool="ImageFolder", learned=[(f"a {colour} card",) for colour in COLOURS], data="."
    )


def hub_parquet(folder: Path) -> ToolData:
    """A hub folder with splits, whose classes have names (`datasets`)."""
    for split, numbers in (("train", (2, 0, 1)), ("test", (0,))):
        images = [{"bytes": picture(number), "path": None} for number in numbers]
        feature = {"names": list(COLOURS), "_type": "ClassLabel"}
        features = {"image": {"_type": "Image"}, "label": feature}
        info = json.dumps({"info": {"features": features}})
        table = pa.table({"image": images, "label": pa.array(numbers, pa.int64())})
        (folder / "data").mkdir(parents=True, exist_ok=True)
        path = folder / "data" / _TRAIN.replace("train", split)
        pq.write_table(table.replace_schema_metadata({"huggingface": info}), path)
    return ToolData(tool="datasets", learned=[("blue",), ("red",), ("green",)], data=".")


def cauldron(folder: Path) -> ToolData:
    """Parquet of The Cauldron and FineVision: `images`, and `texts` of pairs."""
    rows = []
    for number, colour in enumerate(COLOURS):
        pairs = [
            {"user": "Which colour?", "assistant": f"It is {colour}.", "source": "own"},
            {"user": "Sure?", "assistant": "Yes.", "source": "own"},
        ]
        rows.append({"images": [{"bytes": picture(number), "path": None}], "texts": pairs})
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / _TRAIN)
    learned = [(f"It is {colour}.", "Yes.") for colour in COLOURS]
    return ToolData(tool="The Cauldron", learned=learned, data=".")


def coco(folder: Path) -> ToolData:
    """COCO's captions: one object, several captions of a picture."""
    names = _save_pictures(folder / "train2017")
    values = {
        "info": {},
        "images": [{"id": number + 1, "file_name": name} for number, name in enumerate(names)],
        "annotations": [
            {"id": 1, "image_id": 2, "caption": "a green card"},
            {"id": 2, "image_id": 1, "caption": "a red card"},
            {"id": 3, "image_id": 2, "caption": "a card that is green"},
        ],
    }
    _write(folder / "captions_train2017.json", values)
    learned = (("a green card",), ("a red card",), ("a card that is green",))
    return ToolData(tool="COCO", learned=learned, data="captions_train2017.json")


def vqa(folder: Path) -> ToolData:
    """VQA's two files, joined by `question_id`; the second question has no chosen answer."""
    (folder / "train2014").mkdir(parents=True)
    questions, annotations = [], []
    for number, colour in enumerate(COLOURS):
        name = f"COCO_train2014_{number + 1:012d}.png"
        (folder / "train2014" / name).write_bytes(picture(number))
        asked = {"question_id": 10 + number, "image_id": name, "question": "Which colour?"}
        questions.append(asked)
        given = [{"answer": word, "answer_id": 1} for word in ("grey", colour, colour)]
        chosen = {} if number == 1 else {"multiple_choice_answer": colour}
        annotations.append({"question_id": 10 + number, "answers": given, **chosen})
    subtype = {"data_subtype": "train2014"}
    _write(folder / "v2_questions.json", {**subtype, "questions": questions})
    _write(folder / "v2_annotations.json", {**subtype, "annotations": annotations[::-1]})
    learned = [(colour,) for colour in COLOURS]
    return ToolData(tool="VQA", learned=learned, data="v2_questions.json")


def openai(folder: Path) -> ToolData:
    """Rows of hosted fine-tuning: parts with data URIs, `weight` 0 or 1."""
    rows = []
    for number, colour in enumerate(COLOURS):
        url = "data:image/png;base64," + base64.b64encode(picture(number)).decode()
        shown = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
        asked = [{"type": "text", "text": "Which colour?"}, shown]
        rows.append(
            {
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": asked},
                    {"role": "assistant", "content": "A colour.", "weight": 0},
                    {"role": "user", "content": "Which?"},
                    {"role": "assistant", "content": colour, "weight": 1},
                ]
            }
        )
    _write(folder / "rows.jsonl", rows)
    return ToolData(tool="OpenAI", learned=[(colour,) for colour in COLOURS], data="rows.jsonl")


DATA_SETS: tuple[Callable[[Path], ToolData], ...] = (
    *(llama_factory_sharegpt, llama_factory_messages, llama_factory_alpaca),
    *(ms_swift_messages, ms_swift_query, ms_swift_conversation),
    *(trl_prompt_completion, trl_messages, axolotl_messages),
    *(llava, qwen_vl, intern_vl, automodel, energon, img2dataset, image_folder),
    *(hub_parquet, cauldron, coco, vqa, openai),
)
