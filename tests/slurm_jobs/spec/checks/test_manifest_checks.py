import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slurm_jobs.commands.read_spec import MOST_SIZES, SMALL_BYTES, load
from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor

Check = Callable[..., list[str]]

HEADER = "image_path,text\n"
ROW = '{"image": "a.png", "text": "words"}'


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    write_processor(tmp_path)


def found(check: Check, tmp_path: Path, name: str, text: str) -> list[str]:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return check(SPEC.format(name=name))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.csv", ""),
        ("m.csv", HEADER),
        ("m.csv", "\ufeff" + HEADER + "\n\r\n"),
        ("M.CSV", '"image_path","text\n"\n'),
        ("m.jsonl", ""),
        ("m.jsonl", "\ufeff\n  \n"),
        ("m.json", "[]"),
        ("m.json", "[\n]\n"),
    ],
)
def test_a_manifest_without_a_row_is_a_problem_at_its_line(
    check: Check, tmp_path: Path, name: str, text: str
) -> None:
    assert found(check, tmp_path, name, text) == [
        f"7:17: stages.p.config.manifest: {name} has no rows; there is nothing to preprocess"
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.csv", HEADER + "a.png,words\n"),
        ("m.jsonl", ROW),
        ("m.json", f"[{ROW}]"),
        ("m.jsonl", " " * SMALL_BYTES + f"\n{ROW}\n"),
    ],
)
def test_a_manifest_that_may_hold_a_row_is_left_to_the_job(
    check: Check, tmp_path: Path, name: str, text: str
) -> None:
    assert found(check, tmp_path, name, text) == []


def test_a_manifest_that_a_stage_will_write_is_not_looked_into(check: Check) -> None:
    spec = SPEC.format(name='"${make.output_dir}/m.csv"').replace("  p:", "  p:\n    after: make")
    assert check(spec + "  make: {shell: make}\n") == []


def test_held_out_rows_that_are_none_are_told_too(check: Check, tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text(HEADER + "a.png,words\n")
    spec = SPEC.format(name="m.csv") + (
        "  c: {run: consolidate, after: p}\n"
        "  t: {run: train, after: c, config: {device: cpu, strategy: single, num_steps: 1,\n"
        "      evaluate: {manifest: held.csv}}}\n"
    )
    (line,) = check(spec, held__csv=HEADER)
    assert line.startswith("11:28: stages.t.config.evaluate.manifest: held.csv has no rows")


ROWS = "a.png,words\n" * 9000
"""More than is read of a file to see whether it has rows."""
WIDE_ROWS = "1,a.png,words\n" * 9000


@pytest.mark.parametrize("rows", ["a.png,words\n", ROWS])
@pytest.mark.parametrize(
    ("header", "wrong"),
    [
        ("snap,caption\n", "no column has images"),
        ("\ufeffimage_path;text\r\n", "no column has turns"),
        ("image_path, words\n", "no column has turns"),
        ("text,image_path,text\n", "column text named twice"),
    ],
)
def test_a_csv_whose_first_line_lacks_a_column_is_a_problem_at_its_line(
    check: Check, tmp_path: Path, header: str, wrong: str, rows: str
) -> None:
    (line,) = found(check, tmp_path, "m.CSV", header + rows)
    assert line.startswith(f"7:17: stages.p.config.manifest: m.CSV:1: {wrong}")
    names = header.strip(chr(0xFEFF)).strip().split(",")
    assert "twice" in wrong or f"found: {', '.join(names)}. " in line


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + HEADER + ROWS,
        'id,"text","image_path"\r\n' + WIDE_ROWS,
        '"an\nid",image_path,text\n' + WIDE_ROWS,  # a name over two lines is left to the job
        "\n" + " " * SMALL_BYTES,  # it may be blank to its end
        "a" * SMALL_BYTES + ",image_path,text\n" + WIDE_ROWS,
    ],
)
def test_a_csv_whose_first_line_may_name_the_columns_is_left_to_the_job(
    check: Check, tmp_path: Path, text: str
) -> None:
    (tmp_path / "words").touch()  # the image of some
    assert found(check, tmp_path, "m.csv", text) == []


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("m.csv", HEADER + 'a.png,b\n"never closed', "m.csv:3: the row that begins here is no CSV"),
        ("m.json", f"[{ROW},]", "m.json: starts like a JSON list but is not valid JSON"),
        ("m.json", f"[{ROW}", "m.json: starts like a JSON list but is not valid JSON"),
        ("m.json", f"[{ROW}] {ROW}", "m.json: starts like a JSON list but is not valid JSON"),
    ],
)
def test_a_manifest_that_is_damaged_is_a_problem_in_the_words_of_the_job(
    check: Check, tmp_path: Path, name: str, text: str, wrong: str
) -> None:
    (line,) = found(check, tmp_path, name, text)
    assert line.startswith(f"7:17: stages.p.config.manifest: {wrong}")


HELD_OUT = SPEC.replace("{name}", "m.csv") + (
    "  c: {{run: consolidate, after: p}}\n"
    "  t: {{run: train, after: c, config: {{device: cpu, strategy: single, num_steps: 1,\n"
    "      evaluate: {{manifest: {name}}}}}}}\n"
)


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("held.csv", "snap,caption\na.png,words\n", ":1: no column has images"),
        ("held.csv", HEADER, " has no rows; there is nothing to evaluate on"),
        ("held.txt", "a.png words\n", ": neither a `.csv` file, nor JSON lines"),
    ],
)
def test_held_out_rows_are_looked_at_as_those_to_preprocess_are(
    check: Check, tmp_path: Path, name: str, text: str, wrong: str
) -> None:
    (tmp_path / "m.csv").write_text(HEADER + "a.png,words\n")
    (tmp_path / name).write_text(text)
    (line,) = check(HELD_OUT.format(name=name))
    assert line.startswith(f"11:28: stages.t.config.evaluate.manifest: {name}{wrong}")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("m.csv.gz", gzip.compress(ROWS.encode()), "`gunzip -k m.csv.gz`"),
        ("m.csv", gzip.compress(ROWS.encode()), "compressed with gzip"),
        ("m.jsonl", b"version https://git-lfs.github.com/spec/v1\n", "`git lfs pull`"),
    ],
)
def test_a_compressed_manifest_is_named_before_anything_is_queued(
    check: Check, tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(data)
    (message,) = check(SPEC.format(name=name))
    assert words in message


@pytest.mark.parametrize("rows", ["", ROWS])
@pytest.mark.parametrize("start", ["image_path,text\n", "\ufeff a,b\n", '"a"\n', "- a\n"])
def test_a_file_of_no_known_format_is_a_problem_at_its_line(
    check: Check, tmp_path: Path, start: str, rows: str
) -> None:
    (message,) = found(check, tmp_path, "m.tsv", start + rows)
    assert message.startswith(
        "7:17: stages.p.config.manifest: m.tsv: neither a `.csv` file, nor JSON lines (first "
        "character `{`), nor a JSON list (`[`), nor Parquet"
    )


@pytest.mark.parametrize("text", ["\ufeff\n " + ROW, f"[{ROW}]", f"{ROW}\n{ROWS}"])
def test_json_is_known_by_its_first_character_whatever_its_name(
    check: Check, tmp_path: Path, text: str
) -> None:
    assert found(check, tmp_path, "rows", text) == []


JSON_ROW = '{"image_path": "a.png", "text": "words"}'


@pytest.mark.parametrize(
    ("name", "data", "wrong"),
    [
        ("m.jsonl", JSON_ROW.encode("utf-16"), "1: no UTF-8 (it begins as UTF-16 does)"),
        ("m.jsonl", JSON_ROW.encode("utf-16-le"), "1: no UTF-8 (it begins as UTF-16 does)"),
        ("m.json", f"[{JSON_ROW}]".encode("utf-16-be"), "1: no UTF-8 (it begins as UTF-16 does)"),
        ("m.csv", (HEADER + ROWS).encode("utf-16"), "1: no UTF-8 (it begins as UTF-16 does)"),
        (
            "m.csv",
            (HEADER + "a.png,un caf\xe9 noir\n").encode("latin-1"),
            "2: no UTF-8 (byte 0xe9: invalid continuation byte)",
        ),
        (
            "m.json",
            b'[\n{"image_path": "a.png", "text": "caf\xe9"}]',
            "2: no UTF-8 (byte 0xe9: invalid continuation byte)",
        ),
        (
            "m.csv",
            (HEADER + "a.png,caf\xe9\n").encode()[:-2],
            "2: no UTF-8 (byte 0xc3: unexpected end of data)",
        ),
    ],
)
def test_a_manifest_that_is_seen_to_be_no_utf_8_is_a_problem_with_the_line(
    check: Check, tmp_path: Path, name: str, data: bytes, wrong: str
) -> None:
    (tmp_path / name).write_bytes(data)
    assert check(SPEC.format(name=name)) == [
        f"7:17: stages.p.config.manifest: {name}:{wrong}; save the manifest as UTF-8"
    ]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_over_the_end_of_what_is_read_is_no_mistake(
    check: Check, tmp_path: Path, cut: int
) -> None:
    start = HEADER + "a.png,"
    start += "x" * (SMALL_BYTES - len(start) - cut)
    assert found(check, tmp_path, "m.csv", start + "\U0001f600 and more\n") == []


def test_a_line_of_json_that_is_no_utf_8_is_left_to_the_job(check: Check, tmp_path: Path) -> None:
    bad = b'{"image_path": "a.png", "text": "caf\xe9"}\n'
    (tmp_path / "m.jsonl").write_bytes(bad + ROW.encode())
    assert check(SPEC.format(name="m.jsonl")) == []


CHAT = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]}


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("m.json", json.dumps({"data": [CHAT]}, indent=2), "It looks like one JSON value over sev"),
        ("m.jsonl", json.dumps({"data": [CHAT]}), "`data` holds a list of rows; write that list"),
        (
            "m.jsonl",
            '{"question": "a"}\n{"question": "b"}\n',
            "the first 2 rows can be used, from ",
        ),
        ("m.json", json.dumps([{**CHAT, "videos": ["v.mp4"]}] * 3), "3 x `videos` holds video"),
        (
            "m.jsonl",
            (json.dumps({**CHAT, "photo": "p.png"}) + "\n") * 9,
            "9 x `photo` names a pict",
        ),
        ("m.csv", HEADER + "a.png,\n" * 3000, "the first 1,000 rows can be used, from m.csv:2 on"),
        ("m.csv", "image,text,caption\na.png,b,c\n", "`text` and `caption` differ"),
    ],
)
def test_a_manifest_of_which_no_row_can_be_used_is_a_problem_with_the_reason(
    check: Check, tmp_path: Path, name: str, text: str, wrong: str
) -> None:
    (line,) = found(check, tmp_path, name, text)
    which = ("none of the first ", "the first row, ")
    place = f"7:17: stages.p.config.manifest: {name}: "
    assert line.startswith(tuple(place + words for words in which))
    assert wrong in line


@pytest.mark.parametrize("name", ["m.jsonl", "m.json", "m.csv"])
def test_a_column_of_the_config_that_no_row_has_is_a_problem(
    check: Check, tmp_path: Path, name: str
) -> None:
    row = {"picture": "a.png", "words": "b"}
    texts = {
        "m.jsonl": json.dumps(row),
        "m.json": json.dumps([row]),
        "m.csv": "picture,words\na.png,b",
    }
    (tmp_path / name).write_text(texts[name])
    spec = SPEC.format(name=name)
    (line,) = check(spec + "      columns: {image: pictures, text: words}\n")
    assert "no column `pictures`, which `columns.image` names; did you mean `picture`?" in line
    assert check(spec + "      columns: {image: picture, text: words}\n") == []


def test_rows_of_which_no_answer_is_learned_are_a_problem(check: Check, tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!", "loss": False}]
    (line,) = found(check, tmp_path, "m.jsonl", json.dumps({"messages": turns}) + "\n")
    assert "no answer of it is learned" in line


def notes_of(tmp_path: Path, *rows: Any) -> list[str]:
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "spec.yaml").write_text(SPEC.format(name="m.jsonl"))
    return [note.message for note in load(tmp_path / "spec.yaml").notes]


def test_rows_that_cannot_be_used_and_keys_that_are_not_read_are_noted(tmp_path: Path) -> None:
    ignored, bad = sorted(
        notes_of(tmp_path, CHAT, {**CHAT, "video": "v.mp4"}, {**CHAT, "mood": "glad"}),
        key=lambda note: "cannot be used" in note,
    )
    assert "1 of 3 rows cannot be used: 1 x `video` holds" in bad
    assert "(m.jsonl:2)" in bad
    assert ignored.endswith("keys that are not read: `mood`")
    assert notes_of(tmp_path, CHAT, {**CHAT, "source": "coco"}) == []


@pytest.mark.parametrize(
    ("keys", "note"),
    [
        ([{"split": "train"}, {"split": "test"}], "split has the values train, test: all rows are"),
        ([{"Subset": "train2017"}, {"Subset": "val2017"}], "Subset has the values train2017, val"),
        ([{"Usage": "Training"}, {"Usage": "PublicTest"}], "Usage has the values Training, Publi"),
        ([{"set": "coco_test"}], "set has the values coco_test: all rows are trained"),
        ([{"is_test": False}, {"is_test": True}], "is_test has the values False, True: all rows"),
        ([{"is_val": 1}, {"is_val": 0}], "is_val has the values 1, 0: all rows are trained"),
        ([{"split": "train"}] * 1000, "the values train in the first 1,000 rows, and rows of oth"),
        ([{"split": "train", "text": "b" * 2**18}] * 9, "values train in the first 7 rows, and ro"),
        ([{"image": "a/train/1.png"}, {"image": "a\\test\\2.png"}], "several splits, train, test"),
        ([{"split": "train"}, {"split": "train"}], ""),
        ([{"split": "a"}, {"subset": "textvqa"}, {"category": "test"}], ""),
        ([{"image": "train/test_tube.png"}, {"image": "train/test.png"}], ""),
    ],
)
def test_rows_of_a_held_out_split_are_noted(
    tmp_path: Path, keys: list[dict[str, Any]], note: str
) -> None:
    rows = [{"image": "a.png", "text": "b", **row} for row in keys]
    assert [note in text for text in notes_of_splits(tmp_path, rows)] == ([True] if note else [])


def notes_of_splits(tmp_path: Path, rows: list[dict[str, Any]]) -> list[str]:
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "spec.yaml").write_text(SPEC.format(name="m.jsonl"))
    notes = [note.message for note in load(tmp_path / "spec.yaml").notes]
    return [note for note in notes if "splits" in note or "all rows are" in note]


@pytest.mark.parametrize("name", ["m.parquet", "m.csv", "m.json"])
def test_a_column_of_splits_is_noted_in_each_format(tmp_path: Path, name: str) -> None:
    rows = [{"image": "a.png", "text": "a", "split": split} for split in ("train", "validation")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "m.parquet")
    (tmp_path / "m.csv").write_text("image,text,split\na,a,train\na,b,validation\n")
    (tmp_path / "m.json").write_text(json.dumps(rows))
    for ignore, is_noted in (("", True), ("      columns: {ignore: [split]}\n", False)):
        (tmp_path / "spec.yaml").write_text(SPEC.format(name=name) + ignore)
        notes = "".join(note.message for note in load(tmp_path / "spec.yaml").notes)
        assert ("split has the values train, validation: all rows are trained" in notes) == is_noted


def test_only_the_beginning_of_a_long_manifest_is_read(check: Check, tmp_path: Path) -> None:
    with (tmp_path / "m.jsonl").open("w") as stream:
        stream.write((json.dumps(CHAT) + "\n") * 2000)
        stream.truncate(2**33)  # sparse: reading it all would take seconds and fail as JSON
    start = time.process_time()
    assert check(SPEC.format(name="m.jsonl")) == []
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ("https://example.org/1.jpg", "2 x its image cannot be read: https:// is not fetched"),
        ("data:image/png;base64,%%%", "broken base64"),
    ],
)
def test_images_that_no_job_can_read_are_a_problem_of_their_rows(
    check: Check, tmp_path: Path, image: str, problem: str
) -> None:
    row = json.dumps({"image": image, "text": "words"})
    (message,) = found(check, tmp_path, "m.jsonl", f"{row}\n{row}\n")
    assert "none of the first 2 rows can be used" in message
    assert problem in message
    assert found(check, tmp_path, "m.jsonl", f"{row}\n{ROW}\n") == []


@pytest.mark.parametrize(
    ("num_good", "setting", "is_error"),
    [
        (40, "", True),
        (40, "      max_reject_share: 0.05\n", False),
        (40, "  c: {run: consolidate, after: p, config: {max_reject_share: 0.05}}\n", False),
        (1200, "", False),  # the rest of the manifest was not read
        (1, "limit: 1\n", False),
    ],
)
def test_rows_of_which_too_many_cannot_be_used_are_an_error_with_the_numbers(
    check: Check, tmp_path: Path, num_good: int, setting: str, is_error: bool
) -> None:
    rows = [CHAT] * num_good + [{**CHAT, "video": "v.mp4"}] * 2
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    problems = check(SPEC.format(name="m.jsonl") + setting)
    if not is_error:
        assert problems == []
        return
    (line,) = problems
    assert "2 of 42 rows cannot be used: 2 x `video` holds video, which is not read" in line
    assert (
        "(the first: m.jsonl:41). The stage fails, because max_reject_share: 0.01 allows 1" in line
    )


@pytest.mark.parametrize(
    "case", ["a folder of many files", "a table", "an array by itself", "an earlier stage"]
)
def test_unusable_rows_are_noted_where_the_stage_may_end_well_nevertheless(
    check: Check, tmp_path: Path, case: str
) -> None:
    rows = [CHAT] * 40 + [{**CHAT, "video": "v.mp4"}] * 2
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = SPEC.format(name="m.jsonl")
    if case == "a folder of many files":  # whose sizes are not asked for
        for number in range(MOST_SIZES):
            (tmp_path / f"{number}.txt").touch()
    elif case == "a table":
        rows = [{**CHAT, "video": None}] * 40 + [{**CHAT, "video": "v.mp4"}] * 2
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "m.parquet")
        text = SPEC.format(name="m.parquet")
    elif case == "an array by itself":
        text = text.replace("run: preprocess\n", "run: preprocess\n    array: {num_slices: 7}\n")
    else:
        text = text.replace("run: preprocess\n", "run: preprocess\n    after: clean\n")
        text = text.replace("stages:\n", "stages:\n  clean: {shell: python clean.py}\n")
    assert check(text) == []
    (tmp_path / "spec.yaml").write_text(text)
    notes = "".join(note.message for note in load(tmp_path / "spec.yaml").notes)
    assert "2 of " in notes
    assert "The stage would fail with rows like these" in notes


@pytest.mark.parametrize("name", ["m.parquet", "m.csv", "m.jsonl"])
def test_a_name_to_ignore_that_no_column_has_is_noted(tmp_path: Path, name: str) -> None:
    rows = [{"image": "a.png", "text": "a", "notes": "b"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "m.parquet")
    (tmp_path / "m.csv").write_text("image,text,notes\na.png,a,b\n")
    (tmp_path / "m.jsonl").write_text(json.dumps(rows[0]))
    for ignored, is_noted in (("notess", True), ("notes", False)):
        columns = f"      columns: {{ignore: [{ignored}]}}\n"
        (tmp_path / "spec.yaml").write_text(SPEC.format(name=name) + columns)
        notes = "".join(note.message for note in load(tmp_path / "spec.yaml").notes)
        assert ("names `notess`" in notes and "did you mean `notes`?" in notes) == is_noted


def test_a_key_of_turns_may_be_ignored_without_a_note(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "?", "mood": "sad"}, {"role": "assistant", "content": "!"}]
    (tmp_path / "m.jsonl").write_text(json.dumps({"messages": turns}))
    columns = "      columns: {ignore: [mood]}\n"
    (tmp_path / "spec.yaml").write_text(SPEC.format(name="m.jsonl") + columns)
    assert load(tmp_path / "spec.yaml").notes == ()
