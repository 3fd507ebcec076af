"""`slurm-jobs init` on this machine: what it writes is right, and nothing is ever replaced."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from slurm_jobs.commands.spec_reading.stage_packages import NEEDED
from slurm_jobs.commands.starter.place_choice import _GPUS_DIR
from tests.slurm_jobs.cli.specs.begun import SLURM, Init, answering, begin, fake_slurm, images, init
from tests.webdataset_tars import write_energon, write_tar

__all__ = ["begin", "init"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_packages_that_a_stage_lacks_are_noted(init: Init, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDED, "preprocess", frozenset({"no_such_package"}))
    said = init("--recipe", "demo").out
    assert "lacks the package no_such_package: install slurm-jobs[train] there" in said


def test_without_data_and_without_a_terminal_init_writes_the_demo(
    init: Init, tmp_path: Path
) -> None:
    init()
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert found == ["configs/clusters/local.yaml", "configs/demo.yaml", "configs/shapes_demo.py"]


def test_a_fault_of_the_data_is_reported_at_its_line_and_exits_with_2(
    init: Init, tmp_path: Path
) -> None:
    (tmp_path / "m.csv").write_text("snap,text\na,b\n")
    said = init("--data", "m.csv", "--yes", code=2)
    assert "m.csv:1: no column has images" in said.err
    assert "then: " in said.err.splitlines()[-1]
    assert said.err.endswith("check configs/finetune.yaml\n")  # without Slurm
    assert "no problems found" not in said.out


@pytest.mark.parametrize(
    "row",
    [
        {"image_id": 458752, "question": "what is it?", "answer": "a cat"},
        {"dicom_path": "a.dcm", "question": "what is it?", "answer": "a cat"},
        {"image": "", "question": "what is it?", "answer": "a cat"},
    ],
    ids=lambda row: next(iter(row)),
)
def test_rows_without_any_picture_are_an_error_of_the_new_spec(
    init: Init, tmp_path: Path, row: dict[str, object]
) -> None:
    (tmp_path / "m.jsonl").write_text(f"{json.dumps(row)}\n" * 9)
    said = init("--data", "m.jsonl", "--yes", code=2)
    assert "has a picture that is read" in said.err
    assert "text_only: true" in said.err


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("m.csv", b"image,text\na.jpg,caf\xe9\n", "m.csv:2: not UTF-8 (byte 0xe9"),
        ("m.csv", b'image,text\na.jpg,"cat\n', "a double quote that opens"),
        ("m.csv", b"image,text\n", "m.csv has no rows; there is nothing to train on"),
        ("m.json", b'[{"image": "a.jpg", "text": "x"},', "m.json: starts like a JSON list but"),
        ("m.jsonl", b'{"image": "a.jpg", "text": "\xe9"}\n', "m.jsonl:1, cannot be used: no valid"),
        ("m.parquet", b"PAR1 cut short PAR1", "m.parquet is damaged or cut short"),
        ("pics/metadata.csv", b"file_name,text\n1.jpg,\xe9\n", "metadata.csv:2: not UTF-8"),
    ],
)
def test_data_that_must_change_are_refused_before_any_file_is_written(
    init: Init, tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    images(tmp_path / "pics")
    manifest = tmp_path / name
    manifest.write_bytes(content)
    words = ("--data", name if manifest.parent == tmp_path else "pics", "--yes")
    assert problem in init(*words, code=2).err
    assert not (tmp_path / "configs").exists()


def test_a_second_init_keeps_what_it_would_write_and_replaces_nothing(
    init: Init, tmp_path: Path
) -> None:
    init("--recipe", "demo")
    profile = tmp_path / "configs" / "clusters" / "local.yaml"
    profile.write_text(profile.read_text() + "max_cpus: 1\n")
    before = profile.read_bytes()
    assert "kept configs/demo.yaml" in init("--recipe", "demo").out
    assert profile.read_bytes() == before
    demo = tmp_path / "configs" / "demo.yaml"
    demo.write_text(demo.read_text().replace("name: shapes", "name: ours"))
    assert (
        "configs has other files of these names: demo.yaml" in init("--recipe", "demo", code=2).err
    )
    assert "name: ours" in demo.read_text()
    init("--recipe", "demo", "--replace")
    assert "name: shapes\n" in demo.read_text()
    assert "name: ours" in demo.with_name("demo.yaml.old").read_text()
    assert profile.read_bytes() == before
    init("--recipe", "demo", "--name", "second")
    assert "name: second\n" in (tmp_path / "configs" / "second.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--recipe dmo", "no such recipe; did you mean `demo`?"),
        ("--recipe demo --data x", "--data is for your own data"),
        ("--recipe all --name x", "--recipe all copies several"),
        ("--data none.csv --yes", "none.csv: No such file or directory"),
        ("--name 9-lives", "--name 9-lives: `9-lives` is not a valid name"),
        ("--partition gpu", "--local is this machine alone"),
        ("--data pics --model models --yes", "models has no config.json"),
        ("--data pics --model no/model/here --yes", "neither a folder nor a name on the hub"),
        ("--data pics --model ~nobody-of-that-name --yes", "this machine has no user `nobody-of"),
        ("--data ~nobody-of-that-name --yes", "this machine has no user `nobody-of-that-name`"),
        ("--data pics/cat/1.jpg --yes", "is an image: name its folder"),
        ("--data pics --image-root pics --yes", "--image-root is for a manifest"),
        ("--data pics --image-root pics/cat/1.jpg --yes", "is a file; name a folder"),
        ("--recipe demo --image-root pics", "--image-root is for your own data"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_written(
    init: Init, words: str, said: str, tmp_path: Path
) -> None:
    images(tmp_path / "pics")
    (tmp_path / "models").mkdir()
    assert said in init(*words.split(), code=2).err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "pics"]


@pytest.mark.skipif(_GPUS_DIR.is_dir(), reason="this machine has GPUs")
def test_without_gpus_the_training_is_noted_for_own_data_and_for_recipes(
    init: Init, tmp_path: Path
) -> None:
    images(tmp_path / "pics")
    note = "train is meant for GPUs, and this machine shows none"
    assert note in init("--data", "pics", "--yes").out
    assert note in init("--recipe", "packing").out


def test_json_names_the_files_and_asks_nothing(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, "")
    found = json.loads(init("--json").result)
    assert found["spec"] == str(tmp_path / "configs" / "demo.yaml")
    assert "configs/demo.yaml" in found["files"]
    assert found["problems"] == []


def test_slurm_that_does_not_answer_is_3_and_names_the_way_without_it(
    begin: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = dict.fromkeys(SLURM, "echo 'slurm_load: unable to contact' >&2; exit 1")
    fake_slurm(tmp_path / "bin", monkeypatch, **silent)
    assert "add --local to run the jobs on this machine" in begin("--yes", code=3).err
    for option, value in (("--data", "nosuch"), ("--model", "nosuch"), ("--recipe", "nosuch")):
        assert "nosuch: n" in begin(option, value, "--yes", code=2).err.lower()
    assert not (tmp_path / "configs").exists()


def test_a_folder_of_tars_is_trained_and_its_held_out_split_evaluated(
    init: Init, tmp_path: Path
) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (40, 30)).save(picture, "PNG")
    for split in ("train", "val"):
        members: dict[str, bytes | str] = {}
        for row in range(4):
            members |= {f"{row}.png": picture.getvalue(), f"{row}.txt": f"picture {row}"}
        write_tar(tmp_path / "tars" / f"{split}-0000.tar", members)
    said = init("--data", "tars", "--yes").out
    assert "data: tars, 4 rows (WebDataset tars)" in said
    assert "evaluation: tars/val" in said
    spec = (tmp_path / "configs/finetune.yaml").read_text()
    assert 'manifest: "../tars"' in spec
    assert 'evaluate: {manifest: "../tars/val"' in spec


def test_a_folder_for_code_of_energon_is_refused_by_name(init: Init, tmp_path: Path) -> None:
    write_tar(tmp_path / "crude" / "0.tar", {"0.png": b"x", "0.txt": "x"})
    write_energon(tmp_path / "crude", sample_loader="a.py:load")
    said = init("--data", "crude", "--yes", code=2).err
    assert "samples that Python code makes (`sample_loader`), which is not run" in said


def test_a_hub_folder_of_classes_is_trained_and_evaluated_by_their_names(
    init: Init, tmp_path: Path
) -> None:
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["a", "b"]}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    picture = io.BytesIO()
    Image.new("RGB", (40, 30)).save(picture, "PNG")
    columns = {"image": [{"bytes": picture.getvalue(), "path": None}] * 4, "label": [0, 1, 0, 1]}
    table = pa.table(columns).replace_schema_metadata(metadata)
    (tmp_path / "hub" / "data").mkdir(parents=True)
    for split in ("train", "validation"):
        pq.write_table(table, tmp_path / "hub" / "data" / f"{split}-00000-of-00001.parquet")
    said = init("--data", "hub", "--yes").out
    assert "data: hub, 4 rows" in said
    assert "evaluation: hub/validation" in said
    spec = (tmp_path / "configs/finetune.yaml").read_text()
    assert "columns: {text: label}" in spec
    assert 'evaluate: {manifest: "../hub/validation"' in spec
    assert "held_out" not in spec.replace("with `held_out`", "")
