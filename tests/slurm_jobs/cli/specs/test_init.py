"""`slurm-jobs init` on this machine: what it writes is right, and nothing is ever replaced."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from slurm_jobs.commands.spec_reading.stage_packages import NEEDED
from slurm_jobs.commands.starter.place_choice import _GPUS_DIR
from slurm_jobs.commands.starter.recipes import recipe_names
from tests.slurm_jobs.cli.command import Command, Ended

Init = Callable[..., Ended]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def begin(command: Command) -> Init:
    """`init` on a cluster, if there is one."""

    return lambda *words, code=0: command("init", *words, code=code)


@pytest.fixture
def init(begin: Init) -> Init:
    """`init` for this machine alone."""
    return lambda *words, code=0: begin("--local", *words, code=code)


def images(folder: Path) -> Path:
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        (folder / name / "1.jpg").write_bytes(b"GIF89a")
    return folder


def model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "qwen2_vl"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").touch()
    (folder / "processor_config.json").write_text("{}")
    (folder / "preprocessor_config.json").write_text('{"patch_size": 14, "merge_size": 2}')
    return folder


def test_packages_that_a_stage_lacks_are_noted(init: Init, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDED, "preprocess", frozenset({"no_such_package"}))
    said = init("--recipe", "demo").out
    assert "lacks the package no_such_package: install slurm-jobs[train] there" in said


@pytest.mark.parametrize("recipe", recipe_names())
def test_each_recipe_passes_its_check_with_the_files_that_it_needs(init: Init, recipe: str) -> None:
    said = init("--recipe", recipe).out
    assert f"configs/{recipe}.yaml: no problems found" in said
    assert f"run configs/{recipe}.yaml" in said


def test_without_data_and_without_a_terminal_init_writes_the_demo(
    init: Init, tmp_path: Path
) -> None:
    init()
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert found == ["configs/clusters/local.yaml", "configs/demo.yaml", "configs/shapes_demo.py"]


def test_images_in_folders_and_a_model_become_a_spec_that_passes_its_check(
    init: Init, tmp_path: Path
) -> None:
    images(tmp_path / "pics")
    model(tmp_path / "models" / "vlm")
    said = init("specs", "--data", "pics", "--model", "models/vlm", "--name", "mine", "--yes").out
    assert "data: 2 images of pics; their texts are the names of their folders (cat, dog)\n" in said
    *_, note, following, _then = said.splitlines()
    assert note.startswith("note: no image could be opened: 2 files tried, the first is pics/cat")
    assert following.startswith("next: ")
    assert "specs/mine.yaml: no problems found" in said
    spec = (tmp_path / "specs" / "mine.yaml").read_text()
    assert 'path: "../models/vlm"' in spec
    assert 'image_root: "../pics"' in spec
    manifest = (tmp_path / "specs" / "mine.jsonl").read_text()
    assert manifest.startswith('{"image_path": "cat/1.jpg", "text": "cat"}\n')
    assert not (tmp_path / "specs" / "recipes.py").exists()


def test_a_model_on_the_hub_needs_one_module_which_the_spec_names(
    init: Init, tmp_path: Path
) -> None:
    images(tmp_path / "pics")
    said = init("specs", "--data", "pics", "--model", "Some/Model", "--yes").out
    assert "note: there is no folder Some/Model here, so it is taken as a name on the" in said
    assert said.startswith("jobs run on this machine (--local)\n")
    spec = (tmp_path / "specs/finetune.yaml").read_text()
    assert sorted(path.name for path in (tmp_path / "specs").glob("*.py")) == ["recipes.py"]
    assert "add `source: FOLDER` to `config`" in spec
    assert "recipes.py next\n  # to this spec: keep that file" in spec
    assert "shapes_demo" not in spec


def qwen(folder: Path) -> Path:
    """A model whose processor is that of Qwen2.5-VL."""
    images = {"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 12_845_056}
    (model(folder) / "preprocessor_config.json").write_text(json.dumps(images))
    return folder


@pytest.mark.parametrize(
    ("name", "num_images"), [("m.csv", 1), ("m.jsonl", 3), ("m.json", 9), ("m.parquet", 9)]
)
def test_photos_that_a_manifest_names_get_limits_in_which_every_row_fits(
    init: Init, tmp_path: Path, name: str, num_images: int
) -> None:
    qwen(tmp_path / "vlm")
    (tmp_path / "photos").mkdir()
    for number in range(num_images):
        Image.new("1", (4032, 3024)).save(tmp_path / f"photos/{number}.png")
    rows = [{"image": [f"photos/{i}.png" for i in range(num_images)], "text": "word"}] * 12
    texts = {
        "m.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "m.json": json.dumps(rows),
        "m.csv": "image,text\n" + "photos/0.png,word\n" * 12,
    }
    if name in texts:
        (tmp_path / name).write_text(texts[name])
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
    said = init("specs", "--data", name, "--model", "vlm", "--name", "mine", "--yes").out
    spec = yaml.safe_load((tmp_path / "specs/mine.yaml").read_text())
    config = spec["stages"]["preprocess"]["config"]
    assert "lengths: 12 rows read, images of 4032 x 3024 in the median" in said
    assert f"at most {15_552 * num_images + 64 + 12:,}" in said
    assert "mine.yaml: no problems found" in said
    assert "longer by their images" not in said
    tokens = config["image_pixels"]["max"] // 28**2 * num_images
    assert tokens + 768 <= config["max_tokens"]
    assert config.get("max_images", 8) == max(8, num_images)


def test_a_parquet_list_next_to_its_images_is_the_manifest(init: Init, tmp_path: Path) -> None:
    qwen(tmp_path / "vlm")
    (tmp_path / "photos").mkdir()
    rows = [{"file_name": f"{number}.png", "text": "word"} for number in range(3)]
    for row in rows[1:]:
        Image.new("1", (64, 64)).save(tmp_path / "photos" / row["file_name"])
    (tmp_path / "photos/0.png").write_bytes(b"broken")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "photos/metadata.parquet")
    said = init("specs", "--data", "photos", "--model", "vlm", "--yes").out
    assert "data: photos/metadata.parquet, the list of photos" in said
    assert "1 of 3 rows could not be measured; the first is metadata.parquet:row 0" in said
    assert "none of 3 images exists" not in said
    assert (
        'manifest: "../photos/metadata.parquet"' in (tmp_path / "specs/finetune.yaml").read_text()
    )


def test_data_elsewhere_are_named_by_their_whole_path(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = tmp_path / "data" / "m.csv"
    manifest.parent.mkdir()
    manifest.write_text("image_path,text\na.jpg,b\n")
    (tmp_path / "data/a.jpg").write_bytes(b"GIF89a")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    init("--data", str(manifest), "--yes")
    assert f'manifest: "{manifest}"' in (tmp_path / "work/configs/finetune.yaml").read_text()


def test_a_list_does_not_allow_images_elsewhere_automatically(init: Init, tmp_path: Path) -> None:
    images(tmp_path / "pics")
    model(tmp_path / "models" / "vlm")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/m.csv").write_text("image_path,text\n../pics/cat/1.jpg,cat\n")
    words = ("--data", "lists/m.csv", "--model", "models/vlm", "--name", "mine", "--yes")
    told = init("specs", *words, code=2).err
    assert "set `images_within` next to it to a folder that contains them all" in told
    assert f"are in {tmp_path}/pics/cat" in told
    assert "images_within" not in (tmp_path / "specs/mine.yaml").read_text()


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
    init("--recipe", "demo", "--name", "second")
    assert "name: second\n" in (tmp_path / "configs" / "second.yaml").read_text()


def test_all_recipes_come_with_profiles_and_files_of_accelerate(init: Init, tmp_path: Path) -> None:
    init("--recipe", "all")
    names = {
        str(p.relative_to(tmp_path / "configs")) for p in (tmp_path / "configs").rglob("*.yaml")
    }
    assert {f"{recipe}.yaml" for recipe in recipe_names()} <= names
    assert {"accelerate/ddp.yaml", "clusters/test-cluster.yaml", "clusters/local.yaml"} <= names


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
    ],
)
def test_wrong_words_are_refused_before_anything_is_written(
    init: Init, words: str, said: str, tmp_path: Path
) -> None:
    images(tmp_path / "pics")
    (tmp_path / "models").mkdir()
    assert said in init(*words.split(), code=2).err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "pics"]


def answering(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Somebody at a terminal, whose lines these are."""
    stream = io.StringIO(text)
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", stream)


def test_questions_are_answered_and_enter_takes_the_default(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images(tmp_path / "pics")
    answering(monkeypatch, "pics\n\n")
    said = init("--name", "asked")
    assert "your manifest or folder of images" in said.err
    assert "Qwen/Qwen2.5-VL-3B-Instruct, which the stage `models` downloads" in said.out
    assert "there is no folder" not in said.err + said.out


def test_a_model_that_may_be_meant_as_a_folder_is_noted(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images(tmp_path / "pics")
    answering(monkeypatch, "pics\nmodels/missing\n")
    assert "note: there is no folder models/missing here" in init("--name", "asked").out


@pytest.mark.skipif(_GPUS_DIR.is_dir(), reason="this machine has GPUs")
def test_without_gpus_the_training_is_noted_for_own_data_and_for_recipes(
    init: Init, tmp_path: Path
) -> None:
    images(tmp_path / "pics")
    note = "train is meant for GPUs, and this machine shows none"
    assert note in init("--data", "pics", "--yes").out
    assert note in init("--recipe", "packing").out


DATA, MODEL = "your manifest or folder", "model: a folder, or OWNER/NAME"


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (
            "picz\npics\n\n",
            f"picz: No such file or directory; name the file of a manifest, or a folder\n{DATA}",
        ),
        ("~nobody-of-that-name\npics\n\n", f"for a name that begins with `~`\n{DATA}"),
        (
            f"{'x' * 300}\npics\n\n",
            f"File name too long; name the file of a manifest, or a folder\n{DATA}",
        ),
        ("pics\n./nomodel\n\n", f"\n{MODEL}"),
        ("pics\npics\n\n", f"\n{MODEL}"),
        ("pics\n~nobody-of-that-name\n\n", f"\n{MODEL}"),
    ],
)
def test_a_path_or_a_model_that_is_not_there_is_asked_again(
    init: Init, answers: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images(tmp_path / "pics")
    answering(monkeypatch, answers)
    said = init("--name", "asked")
    assert told in said.err
    assert (said.err.count(DATA), said.err.count(MODEL)) in {(2, 1), (1, 2)}
    assert "wrote configs/asked.yaml" in said.out


def test_ctrl_d_ends_the_questions_and_writes_nothing(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, "")
    assert "nothing was written: the input ended" in init(code=2).err
    assert list(tmp_path.iterdir()) == []


def test_json_names_the_files_and_asks_nothing(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, "")
    found = json.loads(init("--json").result)
    assert found["spec"] == str(tmp_path / "configs" / "demo.yaml")
    assert "configs/demo.yaml" in found["files"]
    assert found["problems"] == []


SLURM = {
    "sbatch": "",
    "scontrol": """case "$*" in
*config*) echo 'ClusterName = here' ;;
*) echo 'PartitionName=gpu Default=YES MaxTime=30 State=UP' ;;
esac""",
    "sinfo": "echo 'gpu|4|64|512000|gpu:a100:4|(null)'",
    "squeue": "",
    "sacctmgr": "",
}
"""A cluster with one partition of 30 minutes."""


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, **other: str) -> None:
    """Commands of Slurm's names, alone but for a shell."""
    folder.mkdir()
    for name, text in {**SLURM, **other}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{Path(str(shutil.which('sh'))).parent}")


def test_variables_of_sbatch_do_not_hide_the_gpus(
    begin: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("SBATCH_ACCOUNT", "lab")
    images(tmp_path / "pics")
    model(tmp_path / "models" / "vlm")
    begin("--data", "pics", "--model", "models/vlm", "--yes")
    stages = yaml.safe_load((tmp_path / "configs/finetune.yaml").read_text())["stages"]
    assert stages["train"]["resources"]["gpus_per_node"] == 4
    limits = [stage["resources"]["timeout_min"] for stage in stages.values()]
    assert max(limits) == 30  # of all stages, as the partition has it


def test_nothing_is_written_where_slurm_does_not_say_what_nodes_there_are(
    begin: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm(tmp_path / "bin", monkeypatch, sinfo="echo 'timed out' >&2; exit 1")
    problem = "nothing was written: Slurm did not answer a query for its node types"
    assert problem in begin("--yes", code=3).err
    assert not (tmp_path / "configs").exists()


def test_an_option_that_a_profile_which_stays_does_not_have_is_refused(
    begin: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm(tmp_path / "bin", monkeypatch)
    begin("--yes", "--account", "lab")
    begin("--yes", "--account", "lab", "--partition", "gpu", "--name", "again")
    profile = tmp_path / "configs/clusters/here.yaml"
    lines = profile.read_text().replace("partition: gpu", "partition: other")
    profile.write_text(f"{lines}# of a and of gpu\n")
    for words in (("--account", "grant"), ("--account", "a"), ("--partition", "gpu")):
        assert (
            f"{' '.join(words)} would have no effect"
            in begin("--yes", *words, "--name", "third", code=2).err
        )
    assert not (tmp_path / "configs/third.yaml").exists()


def test_few_samples_fill_some_steps_and_a_model_of_ours_is_known(
    init: Init, tmp_path: Path
) -> None:
    images(tmp_path / "pics")
    for number in range(60):
        (tmp_path / "pics/cat" / f"{number}.jpg").write_bytes(b"GIF89a")
    config = model(tmp_path / "models/vlm") / "config.json"
    config.write_text('{"model_type": "small_vlm"}')
    init("--data", "pics", "--model", "models/vlm", "--yes")
    stages = yaml.safe_load((tmp_path / "configs/finetune.yaml").read_text())["stages"]
    train = stages["train"]["config"]
    assert (train["batching"], train["global_batch_size"]) == ({"kind": "grouped"}, 8)
    assert train["num_epochs"] == 3  # 62 samples: 8 steps an epoch
    assert train["model"]["type"] == "small_vlm"


def test_slurm_that_does_not_answer_is_3_and_names_the_way_without_it(
    begin: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = dict.fromkeys(SLURM, "echo 'slurm_load: unable to contact' >&2; exit 1")
    fake_slurm(tmp_path / "bin", monkeypatch, **silent)
    assert "add --local to run the jobs on this machine" in begin("--yes", code=3).err
    for option, value in (("--data", "nosuch"), ("--model", "nosuch"), ("--recipe", "nosuch")):
        assert "nosuch: n" in begin(option, value, "--yes", code=2).err.lower()
    assert not (tmp_path / "configs").exists()
