"""Manifests whose first rows show that a stage would fail."""

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.commands.spec_reading.disk_files import SMALL_BYTES
from tests.slurm_jobs.spec.checks.data.checked_manifests import (
    ANSWER,
    CHAT,
    QUESTION,
    write,
    write_in_each_format,
)
from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor
from tests.slurm_jobs.spec.conftest import Check

PLACE = "7:17: stages.p.config.manifest: "
HEADER = "image_path,text\n"
ROW = '{"image": "a.png", "text": "words"}'
ROWS = "a.png,words\n" * 9000
"""More than is read of a file to see whether it has rows."""
WIDE_ROWS = "1,a.png,words\n" * 9000


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    write_processor(tmp_path)


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
        ("m.csv", gzip.compress(ROWS.encode()), "packed with gzip"),
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
            *("m.jsonl", [{"messages": [QUESTION, {**ANSWER, "loss": False}]}]),
            "no turn is learned: each answer is marked as context",
        ),
        (
            *("m.jsonl", [{"messages": [QUESTION, {**ANSWER, "content": " \n"}]}]),
            "the assistant says nothing but white space",
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


def test_only_the_beginning_of_a_long_manifest_is_read(check: Check, tmp_path: Path) -> None:
    spec = write(tmp_path, [CHAT] * 2000)
    with (tmp_path / "m.jsonl").open("r+") as stream:
        stream.truncate(2**33)  # sparse: reading it all would take seconds and fail as JSON
    start = time.process_time()
    assert check(spec) == []
    assert time.process_time() - start < 2
