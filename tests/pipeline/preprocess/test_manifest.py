"""Manifests of all formats, and what is said of bad rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.preprocess.manifest import read_manifest
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.manifests.messages import ManifestRow


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def said(row: ManifestRow) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(m.role, [(item.kind, item.value) for item in m.content]) for m in row.messages]


def read_chat(tmp_path: Path, *values: object) -> list[ManifestRow]:
    lines = "".join(json.dumps(value) + "\n" for value in values)
    return read_manifest(write(tmp_path / "m.jsonl", lines))


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


ANSWER = {"role": "assistant", "content": "yes"}
TURNS = [user("ok?"), ANSWER]
HEAD, GOOD = b"image_path,text\n", b"x.png,words\n"


def test_csv_row_is_prompt_and_answer(tmp_path: Path) -> None:
    path = write(tmp_path / "m.csv", 'text,image_path\n"a, b\nc",x.png\nd,y.png\n')
    rows = read_manifest(path, prompt="What?", system_prompt="Be brief.")
    assert said(rows[0]) == [
        ("system", [("text", "Be brief.")]),
        ("user", [("image", "x.png"), ("text", "What?")]),
        ("assistant", [("text", "a, b\nc")]),
    ]
    assert [row.origin.line for row in rows] == [2, 4]
    assert [row.key for row in rows] == ["000000000", "000000001"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"snap,text\nx.png,a\n", r":1: no column has images .* snap, text"),
        (b"image_path,text,text\nx.png,a,b\n", ":1: column text named twice"),
        (b"image_path,text,image_path\nx.png,a,b\n", ":1: column image_path named twice"),
        (HEAD + b"x.png,caf\xe9\n" + GOOD,
         r":2: not UTF-8 \(byte 0xe9: .*\); save the manifest as UTF-8"),
        (HEAD + GOOD * 498 + b"x.png,caf\xe9\n" + GOOD, r":500: not UTF-8 \(byte 0xe9"),
        (HEAD + GOOD * 10 + b'x.png,"a cup\n' + GOOD,
         r":12: .* not valid CSV \(unexpected end of data at line 13\); a double qu"),
        # The line of the quote itself, though a later row has quotes.
        (HEAD + GOOD + b'y.png,"a cup\nz.png,b\nz.png,"two, of tin"\n',
         r":3: .* expected after '\"' at line 5\)"),
        # An odd quote may open what the next rows close.
        (HEAD + b'a.png,"he said "hi", and\nb.png,"left\nc.png,ok\nd.png,ok2"\n', ":2: .* CSV"),
    ],
)  # fmt: skip
def test_csv_that_cannot_be_read_is_refused_with_its_line(
    tmp_path: Path, text: bytes, words: str
) -> None:
    (tmp_path / "m.csv").write_bytes(text)
    with pytest.raises(StageConfigError, match=rf"m\.csv{words}"):
        read_manifest(tmp_path / "m.csv")


def test_csv_may_name_a_column_twice_that_is_not_read(tmp_path: Path) -> None:
    (row,) = read_manifest(write(tmp_path / "m.csv", "image_path,text,n,n\nx.png,a,b,c\n"))
    assert row.problem == ""


def test_quotes_in_the_wrong_place_are_a_fault_of_their_row_alone(tmp_path: Path) -> None:
    text = 'image_path,text\nx.png,a\ny.png,"a "tin" cup"\nz.png,"two, of tin"\n'
    good, bad, other = read_manifest(write(tmp_path / "m.csv", text))
    assert bad.problem == "not valid CSV (',' expected after '\"')"
    assert (good.problem, other.problem, bad.origin.line) == ("", "", 3)


def test_csv_row_with_too_many_or_too_few_cells_is_bad_and_hides_no_other(tmp_path: Path) -> None:
    text = 'image_path,text,split\nx.png,a dog, running,a\nx.png,a dog\nx.png,"a, b",a\n'
    wide, narrow, good = read_manifest(write(tmp_path / "m.csv", text))
    assert wide.problem.startswith("4 cells, the first line names 3 columns; put a text that has")
    assert narrow.problem == "2 cells, the first line names 3 columns"
    assert (good.problem, said(good)[-1]) == ("", ("assistant", [("text", "a, b")]))
    assert [row.origin.line for row in (wide, narrow, good)] == [2, 3, 4]


def test_chat_images_stand_inline_or_in_a_list(tmp_path: Path) -> None:
    text = {"type": "text", "text": "ok?"}
    listed = ([{"type": "image"}, text], [{"type": "text", "text": "<image>\nok?"}], "<image>\nok?")
    rows = read_chat(
        tmp_path,
        {"messages": [user([{"type": "image", "path": "x.png"}, text]), ANSWER]},
        *({"messages": [user(each), ANSWER], "images": ["x.png"]} for each in (*listed, "ok?")),
    )
    expected = [("user", [("image", "x.png"), ("text", "ok?")]), ("assistant", [("text", "yes")])]
    assert [said(row) for row in rows] == [expected] * 5
    assert {row.source for row in rows} == {"x.png"}


@pytest.mark.parametrize("empty", [None, [], ""])
@pytest.mark.parametrize(("filled", "other"), [("images", "image"), ("image", "images")])
def test_empty_list_of_images_does_not_hide_the_other(
    tmp_path: Path, filled: str, other: str, empty: object
) -> None:
    (row,) = read_chat(tmp_path, {"messages": TURNS, other: empty, filled: "x.png"})
    assert (row.image_paths, row.source, row.problem) == (("x.png",), "x.png", "")


def test_row_that_names_its_images_twice_is_bad_only_where_they_differ(tmp_path: Path) -> None:
    same, bad, none = read_chat(
        tmp_path,
        {"messages": TURNS, "images": [{"path": "x.png"}], "image": "x.png"},
        {"messages": TURNS, "images": ["x.png", "y.png"], "image": "x.png"},
        {"messages": TURNS, "images": [], "image": None},
    )
    assert (same.image_paths, same.problem) == (("x.png",), "")
    assert bad.problem == "`images` lists ['x.png', 'y.png'], `image` ['x.png']"
    assert (none.image_paths, none.problem) == ((), "")


def test_id_that_is_null_is_none(tmp_path: Path) -> None:
    rows = read_chat(
        tmp_path,
        {"id": None, "messages": TURNS, "images": ["x.png"]},
        {"id": None, "messages": TURNS},
        {"id": 0, "messages": TURNS, "images": ["x.png"]},
    )
    assert [row.source for row in rows] == ["x.png", "", "0"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"words": "x"}, "neither `messages` nor `conversations`"),
        ({"messages": []}, "empty"),
        ({"messages": [user("x")]}, "last turn is the user's"),
        ({"messages": [{"role": "bot", "content": "x"}]}, "role 'bot'; allowed are"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "role ['user']; allowed are"),
        ({"id": "\ud800", "messages": [user("a\ud800"), ANSWER]}, "surrogate pair in 'a\\ud800'"),
        ({"messages": [ANSWER, {"role": "user"}]}, "without `role` and `content`"),
        (
            {"messages": [user("<image>"), ANSWER]},
            "the text has 1 place for images, and the row lists 0 images",
        ),
        ({"messages": [user([{"type": "video"}]), ANSWER]}, "'video'"),
    ],
)
def test_bad_row_says_what_is_wrong(tmp_path: Path, value: object, problem: str) -> None:
    (row,) = read_chat(tmp_path, value)
    assert problem in row.problem
    (row.source + row.problem).encode()


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    "line",
    [
        "\n{broken",
        f'{{"messages": {nested(200_000)}}}',
        *(f'{{"messages": [{{"role": {nested(d)}, "content": "x"}}]}}' for d in (500, 960, 975)),
    ],
    ids=["broken", "200,000 deep", "500 deep", "960 deep", "975 deep"],
)
def test_line_that_is_broken_or_nested_too_deeply_does_not_hide_the_others(
    tmp_path: Path, line: str
) -> None:
    good = json.dumps({"messages": TURNS})
    rows = read_manifest(write(tmp_path / "m.jsonl", f"{good}\n{line}\n{good}\n"))
    assert [bool(row.problem) for row in rows] == [False, True, False]
    assert len(rows[1].problem) < 300
    assert str(rows[1].origin) == f"m.jsonl:{len(line.splitlines()) + 1}"


def test_json_list_that_is_nested_too_deeply_is_refused_without_a_retry(
    tmp_path: Path,
) -> None:
    with pytest.raises(StageConfigError, match=r"m\.json: .* nested too deeply"):
        read_manifest(write(tmp_path / "m.json", nested(200_000)))


def test_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageConfigError, match="neither"):
        read_manifest(write(tmp_path / "m.txt", "hello\n"))


@pytest.mark.parametrize("name", ["m.txt", "m.csv", "m.jsonl", "m.json"])
@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff", "\n" * 10_000])
def test_a_blank_manifest_has_no_rows_and_no_wrong_format(
    tmp_path: Path, name: str, text: str
) -> None:
    assert read_manifest(write(tmp_path / name, text)) == []


def test_a_manifest_that_begins_with_many_blank_lines_is_read(tmp_path: Path) -> None:
    assert len(read_manifest(write(tmp_path / "m.json", "\n" * 10_000 + "[{}, {}]"))) == 2
