import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.operations.disk import SMALL_BYTES
from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor

Check = Callable[..., list[str]]

HEADER = "image_path,text\n"


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
        ("m.csv", HEADER + '"never closed'),  # what is wrong with a row is told by the job
        ("m.jsonl", "{}"),
        ("m.json", "[{}]"),
        ("m.jsonl", " " * SMALL_BYTES + "\n{}\n"),
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
        'id,"text","image_path"\r\n' + ROWS,
        '"an\nid",image_path,text\n' + ROWS,  # a name over two lines is left to the job
        "\n" + " " * SMALL_BYTES,  # it may be blank to its end
        "a" * SMALL_BYTES + ",image_path,text\n" + ROWS,
    ],
)
def test_a_csv_whose_first_line_may_name_the_columns_is_left_to_the_job(
    check: Check, tmp_path: Path, text: str
) -> None:
    assert found(check, tmp_path, "m.csv", text) == []


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


@pytest.mark.parametrize("text", ["\ufeff\n {}\n", "[{}]", '{"messages": []}\n' + ROWS])
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
    (tmp_path / "m.jsonl").write_bytes(b'{"image_path": "a.png", "text": "caf\xe9"}\n')
    assert check(SPEC.format(name="m.jsonl")) == []
