import gzip
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slurm_jobs.commands.spec_reading.disk_files import MOST_SIZES, SMALL_BYTES
from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor
from tests.slurm_jobs.spec.conftest import Check, Notes

PLACE = "7:17: stages.p.config.manifest: "
HEADER = "image_path,text\n"
ROW = '{"image": "a.png", "text": "words"}'
ROWS = "a.png,words\n" * 9000
"""More than is read of a file to see whether it has rows."""
WIDE_ROWS = "1,a.png,words\n" * 9000
QUESTION, ANSWER = {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}
CHAT = {"messages": [QUESTION, ANSWER]}
TEXT_SPEC = SPEC + "      text_only: true\n"
VIDEO = {**CHAT, "video": "v.mp4"}


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    write_processor(tmp_path)


def write(folder: Path, data: str | bytes | list[Any], name: str = "m.jsonl") -> str:
    """Write a manifest, of rows as JSON lines, and return the spec that reads it."""
    if isinstance(data, list):
        data = "".join(json.dumps(row) + "\n" for row in data)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return TEXT_SPEC.format(name=name)


def write_in_each_format(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write the same rows as m.jsonl, m.json, m.csv and m.parquet."""
    write(folder, rows)
    write(folder, json.dumps(rows), "m.json")
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    write(folder, "\n".join(lines), "m.csv")
    pq.write_table(pa.Table.from_pylist(rows), folder / "m.parquet")


NO_ROWS = " has no rows; there is nothing to preprocess"
NO_JSON = ": starts like a JSON list but is not valid JSON"
UTF_16 = ":1: not UTF-8 (it begins like UTF-16); save the manifest as UTF-8"


@pytest.mark.parametrize(
    ("name", "data", "wrong"),
    [
        ("m.csv", "", NO_ROWS),
        ("m.csv", HEADER, NO_ROWS),
        ("m.csv", "\ufeff" + HEADER + "\n\r\n", NO_ROWS),
        ("M.CSV", '"image_path","text\n"\n', NO_ROWS),
        ("m.jsonl", "", NO_ROWS),
        ("m.jsonl", "\ufeff\n  \n", NO_ROWS),
        ("m.json", "[]", NO_ROWS),
        ("m.json", "[\n]\n", NO_ROWS),
        (
            "m.csv",
            HEADER + 'a.png,b\n"never closed',
            ":3: the row that begins here is not valid CSV",
        ),
        ("m.json", f"[{ROW},]", NO_JSON),
        ("m.json", f"[{ROW}", NO_JSON),
        ("m.json", f"[{ROW}] {ROW}", NO_JSON),
        ("m.csv.gz", gzip.compress(ROWS.encode()), "`gunzip -k m.csv.gz`"),
        ("m.csv", gzip.compress(ROWS.encode()), "compressed with gzip"),
        ("m.jsonl", b"version https://git-lfs.github.com/spec/v1\n", "`git lfs pull`"),
        ("m.jsonl", ROW.encode("utf-16"), UTF_16),
        ("m.jsonl", ROW.encode("utf-16-le"), UTF_16),
        ("m.json", f"[{ROW}]".encode("utf-16-be"), UTF_16),
        ("m.csv", (HEADER + ROWS).encode("utf-16"), UTF_16),
        ("m.csv", HEADER.encode() + b"a.png,caf\xe9 noir\n", ":2: not UTF-8 (byte 0xe9: invalid"),
        ("m.json", b'[\n{"image": "a.png", "text": "caf\xe9"}]', ":2: not UTF-8 (byte 0xe9: inval"),
        ("m.csv", HEADER.encode() + b"a.png,caf\xc3", ":2: not UTF-8 (byte 0xc3: unexpected end"),
        ("m.json", json.dumps({"data": [CHAT]}, indent=2), "It looks like one JSON value over sev"),
        ("m.jsonl", [{"data": [CHAT]}], "the first row, m.jsonl:1, cannot be used: `data` holds a"),
        ("m.jsonl", [{"question": "a"}, {"question": "b"}], ": none of the first 2 rows can be us"),
        (
            "m.json",
            json.dumps([{**CHAT, "videos": ["v.mp4"]}] * 3),
            "m.json:row 0: `videos` holds video",
        ),
        ("m.jsonl", [{**CHAT, "photo": "p.png"}] * 9, "\n  m.jsonl:1: `photo` names a pict"),
        ("m.csv", HEADER + "a.png,\n" * 3000, "the first 1,000 rows can be used:\n  m.csv:2: "),
        ("m.csv", "image,text,caption\na.png,b,c\n", "`text` and `caption` differ"),
        (
            *("m.jsonl", [{"image": "https://example.org/1.jpg", "text": "words"}] * 2),
            "m.jsonl:1: its image cannot be read: https:// is not fetched",
        ),
        ("m.jsonl", [{"image": "data:image/png;base64,%%%", "text": "b"}] * 2, "broken base64"),
        (
            *(
                "m.jsonl",
                [{"messages": [QUESTION, {**ANSWER, "loss": False}]}],
            ),
            "none of its answers is learned",
        ),
    ],
)
def test_a_manifest_without_a_usable_row_is_a_problem_with_the_reason(
    check: Check, tmp_path: Path, name: str, data: str | bytes | list[Any], wrong: str
) -> None:
    (line,) = check(write(tmp_path, data, name))
    assert line.startswith(f"{PLACE}{name}")
    assert wrong in line


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("m.csv", HEADER + "a.png,words\n"),
        ("m.jsonl", ROW),
        ("m.json", f"[{ROW}]"),
        ("m.jsonl", " " * SMALL_BYTES + f"\n{ROW}\n"),
        # known by the first character, whatever the name
        ("rows", "\ufeff\n " + ROW),
        ("rows", f"[{ROW}]"),
        ("rows", f"{ROW}\n{ROWS}"),
        # columns that the first line may name
        ("m.csv", "\ufeff" + HEADER + ROWS),
        ("m.csv", 'id,"text","image_path"\r\n' + WIDE_ROWS),
        ("m.csv", '"an\nid",image_path,text\n' + WIDE_ROWS),  # a name over two lines
        ("m.csv", "\n" + " " * SMALL_BYTES),  # it may be blank to its end
        ("m.csv", "a" * SMALL_BYTES + ",image_path,text\n" + WIDE_ROWS),
        # a character over the end of what is read
        *(
            ("m.csv", (HEADER + "a.png,").ljust(SMALL_BYTES - cut, "x") + "\U0001f600 and more\n")
            for cut in (1, 2, 3)
        ),
        # one row of two that cannot be used
        ("m.jsonl", b'{"image_path": "a.png", "text": "caf\xe9"}\n' + ROW.encode()),
        ("m.jsonl", f'{{"image": "https://example.org/1.jpg", "text": "words"}}\n{ROW}\n'),
        ("m.jsonl", f'{{"image": "data:image/png;base64,%%%", "text": "words"}}\n{ROW}\n'),
    ],
)
def test_a_manifest_that_may_hold_a_row_is_left_to_the_job(
    check: Check, tmp_path: Path, name: str, data: str | bytes
) -> None:
    (tmp_path / "words").write_bytes(b"GIF89a")  # the image of some
    assert check(write(tmp_path, data, name)) == []


def test_a_manifest_that_a_stage_will_write_is_not_read(check: Check) -> None:
    spec = SPEC.format(name='"${make.output_dir}/m.csv"').replace("  p:", "  p:\n    after: make")
    assert check(spec + "  make: {shell: make}\n") == []


@pytest.mark.parametrize(
    ("name", "header", "wrong"),
    [
        ("m.CSV", "snap,caption\n", ":1: no column has images"),
        ("m.CSV", "\ufeffimage_path;text\r\n", ":1: no column has turns"),
        ("m.CSV", "image_path, words\n", ":1: no column has turns"),
        ("m.CSV", "text,image_path,text\n", ":1: column text named twice"),
        *(
            ("m.tsv", start, ": neither a `.csv` file, nor JSON lines (first character `{`), nor a")
            for start in ("image_path,text\n", "\ufeff a,b\n", '"a"\n', "- a\n")
        ),
    ],
)
def test_a_first_line_that_names_no_columns_is_a_problem(
    check: Check, tmp_path: Path, name: str, header: str, wrong: str
) -> None:
    found = f"found: {', '.join(header.strip(chr(0xFEFF)).strip().split(','))}. "
    for rows in ("a.png,words\n", ROWS):
        (line,) = check(write(tmp_path, header + rows, name))
        assert line.startswith(f"{PLACE}{name}{wrong}")
        assert found in line or "no column" not in wrong


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("held.csv", "snap,caption\na.png,words\n", ":1: no column has imag"),
        ("held.csv", HEADER, " has no rows; there is nothing to evaluate on"),
        ("held.txt", "a.png words\n", ": neither a `.csv` file, nor JSON lines"),
    ],
)
def test_held_out_rows_are_checked_as_those_to_preprocess_are(
    check: Check, tmp_path: Path, name: str, text: str, wrong: str
) -> None:
    write(tmp_path, text, name)
    spec = write(tmp_path, HEADER + "a.png,words\n", "m.csv") + (
        "  c: {run: consolidate, after: p}\n"
        "  t: {run: train, after: c, config: {device: cpu, strategy: single, num_steps: 1,\n"
        f"      evaluate: {{manifest: {name}}}}}}}\n"
    )
    (line,) = check(spec)
    assert line.startswith(f"12:28: stages.t.config.evaluate.manifest: {name}{wrong}")


@pytest.mark.parametrize("name", ["m.jsonl", "m.json", "m.csv"])
def test_a_column_of_the_config_that_no_row_has_is_a_problem(
    check: Check, tmp_path: Path, name: str
) -> None:
    write_in_each_format(tmp_path, [{"picture": "a.png", "words": "b"}])
    spec = SPEC.format(name=name)
    (line,) = check(spec + "      columns: {image: pictures, text: words}\n")
    assert "no column `pictures`, which `columns.image` names; did you mean `picture`?" in line
    assert check(spec + "      columns: {image: picture, text: words}\n") == []


def test_rows_that_cannot_be_used_and_keys_that_are_not_read_are_noted(
    notes: Notes, tmp_path: Path
) -> None:
    ignored, bad = sorted(
        notes(write(tmp_path, [CHAT, VIDEO, {**CHAT, "mood": "glad"}])),
        key=lambda note: "cannot be used" in note,
    )
    assert "1 of 3 rows cannot be used:\n  m.jsonl:2: `video` holds" in bad
    assert ignored.endswith("keys that are not read: `mood`")
    assert notes(write(tmp_path, [CHAT, {**CHAT, "source": "coco"}])) == []


@pytest.mark.parametrize(
    ("keys", "said"),
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
    notes: Notes, tmp_path: Path, keys: list[dict[str, Any]], said: str
) -> None:
    spec = write(tmp_path, [{"image": "a.png", "text": "b", **row} for row in keys])
    found = [note for note in notes(spec) if "splits" in note or "all rows are" in note]
    assert [said in note for note in found] == [True] * bool(said)


@pytest.mark.parametrize("name", ["m.parquet", "m.csv", "m.json"])
def test_a_column_of_splits_is_noted_in_each_format_unless_it_is_ignored(
    notes: Notes, tmp_path: Path, name: str
) -> None:
    row = {"image": "a.png", "text": "a"}
    write_in_each_format(tmp_path, [{**row, "split": split} for split in ("train", "validation")])
    said = "split has the values train, validation: all rows are trained"
    assert said in "".join(notes(SPEC.format(name=name)))
    ignored = SPEC.format(name=name) + "      columns: {ignore: [split]}\n"
    assert said not in "".join(notes(ignored))


@pytest.mark.parametrize("name", ["m.parquet", "m.csv", "m.jsonl"])
def test_a_name_to_ignore_that_no_column_has_is_noted(
    notes: Notes, tmp_path: Path, name: str
) -> None:
    write_in_each_format(tmp_path, [{"image": "a.png", "text": "a", "notes": "b"}])
    for ignored, is_noted in (("notess", True), ("notes", False)):
        found = "".join(notes(SPEC.format(name=name) + f"      columns: {{ignore: [{ignored}]}}\n"))
        assert ("names `notess`" in found and "did you mean `notes`?" in found) == is_noted


def test_a_key_of_turns_may_be_ignored_without_a_note(notes: Notes, tmp_path: Path) -> None:
    spec = write(tmp_path, [{"messages": [{**QUESTION, "mood": "sad"}, ANSWER]}])
    assert notes(spec + "      columns: {ignore: [mood]}\n") == []


def test_only_the_beginning_of_a_long_manifest_is_read(check: Check, tmp_path: Path) -> None:
    spec = write(tmp_path, [CHAT] * 2000)
    with (tmp_path / "m.jsonl").open("r+") as stream:
        stream.truncate(2**33)  # sparse: reading it all would take seconds and fail as JSON
    start = time.process_time()
    assert check(spec) == []
    assert time.process_time() - start < 2


def test_too_many_unusable_rows_are_an_error_with_the_numbers(check: Check, tmp_path: Path) -> None:
    (line,) = check(write(tmp_path, [CHAT] * 40 + [VIDEO] * 2))
    said = "2 of 42 rows cannot be used. The stage fails, because max_reject_share: 0.01 allows 1"
    assert said in line
    assert "\n  m.jsonl:41: `video` holds video, which is not read" in line
    assert line.endswith("(the first of 2 rows)")


@pytest.mark.parametrize(
    ("num_good", "setting"),
    [
        (40, "      max_reject_share: 0.05\n"),
        (40, "  c: {run: consolidate, after: p, config: {max_reject_share: 0.05}}\n"),
        (1200, ""),  # the rest of the manifest was not read
        (1, "limit: 1\n"),
    ],
)
def test_rows_that_cannot_be_used_are_no_error_where_the_job_may_lose_them(
    check: Check, tmp_path: Path, num_good: int, setting: str
) -> None:
    assert check(write(tmp_path, [CHAT] * num_good + [VIDEO] * 2) + setting) == []


@pytest.mark.parametrize(
    "case", ["a folder of many files", "a table", "an array by itself", "an earlier stage"]
)
def test_unusable_rows_are_noted_where_the_stage_may_end_well_nevertheless(
    check: Check, notes: Notes, tmp_path: Path, case: str
) -> None:
    rows = [CHAT] * 40 + [VIDEO] * 2
    text = write(tmp_path, rows)
    if case == "a folder of many files":  # whose sizes are not asked for
        for number in range(MOST_SIZES):
            (tmp_path / f"{number}.txt").touch()
    elif case == "a table":
        table = pa.Table.from_pylist([{**CHAT, "video": row.get("video")} for row in rows])
        pq.write_table(table, tmp_path / "m.parquet")
        text = TEXT_SPEC.format(name="m.parquet")
    elif case == "an array by itself":
        text = text.replace("run: preprocess\n", "run: preprocess\n    array: {num_slices: 7}\n")
    else:
        text = text.replace("run: preprocess\n", "run: preprocess\n    after: clean\n")
        text = text.replace("stages:\n", "stages:\n  clean: {shell: python clean.py}\n")
    assert check(text) == []
    found = "".join(notes(text))
    assert "2 of " in found
    assert "The stage would fail with rows like these" in found
