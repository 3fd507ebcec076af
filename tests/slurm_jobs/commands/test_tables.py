"""Tables as `check` looks at them, with pyarrow and without."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from slurm_jobs.cli.main import main
from slurm_jobs.commands import read_spec
from slurm_jobs.commands.read_spec import load
from slurm_jobs.shared.errors import SpecError
from tests.pipeline.tables import captions, write_parquet, write_saved
from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    write_processor(tmp_path)
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC.format(name="m"))
    return file


def problems(spec: Path) -> list[str]:
    try:
        load(spec)
    except SpecError as error:
        lines = (str(problem).replace(f"{spec}:", "", 1) for problem in error.problems)
        return [line.replace(f"{spec.parent}/", "") for line in lines]
    return []


WRITERS = [
    lambda folder, table: write_parquet(folder / "a.parquet", table),
    lambda folder, table: write_saved(folder, [table]),
    write_parquet,  # a file that is called `m`
]


@pytest.mark.parametrize("write", WRITERS)
def test_a_table_without_rows_or_columns_is_a_problem_at_its_line(spec: Path, write) -> None:
    write(spec.parent / "m", captions(3).slice(0, 0))
    place = "7:17: stages.p.config.manifest: m"
    assert problems(spec) == [f"{place} has no rows; there is nothing to preprocess"]
    write(spec.parent / "m", pa.table({"url": ["a"], "caption": ["b"]}))
    (line,) = problems(spec)
    assert line.startswith(f"{place}: no column has ")
    assert "found: url, caption. Name it" in line
    write(spec.parent / "m", captions(3))
    assert problems(spec) == []


def test_a_table_whose_first_file_is_empty_may_have_rows(spec: Path) -> None:
    write_saved(spec.parent / "m", [captions(3).slice(0, 0), captions(3)])
    assert problems(spec) == []


def test_damage_and_folders_that_are_no_table_are_told(spec: Path) -> None:
    (spec.parent / "m").mkdir()
    assert "m is a folder without `*.parquet` files" in problems(spec)[0]
    (spec.parent / "m/cats").mkdir()
    (spec.parent / "m/cats/1.JPG").touch()
    assert "`slurm-jobs init --data m` writes one" in problems(spec)[0]
    file = write_parquet(spec.parent / "m" / "a.parquet", captions(3))
    file.write_bytes(file.read_bytes()[:-30])
    assert "m is damaged or cut short" in problems(spec)[0]


def test_without_pyarrow_check_says_what_it_did_not_look_at(
    spec: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_parquet(spec.parent / "m" / "a.parquet", captions(3).slice(0, 0))
    monkeypatch.setattr(read_spec, "has_pyarrow", lambda: False)
    assert problems(spec) == []
    with pytest.raises(SystemExit, match="0"):
        main(["check", str(spec), "--json"])
    (note,) = json.loads(capsys.readouterr().out)["notes"]
    place = f"stages.p.config.manifest: {spec.parent}/m"
    assert note.startswith(f"{place} is a table, and this Python has no pyarrow: its columns and")
