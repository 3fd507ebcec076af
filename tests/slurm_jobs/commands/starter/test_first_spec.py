"""The first spec of a user's data and model: it passes its check, and its rows fit."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from tests.slurm_jobs.cli.command import command
from tests.slurm_jobs.cli.specs.begun import Init, begin, fake_slurm, images, init

__all__ = ["begin", "command", "init"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "qwen2_vl"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").touch()
    (folder / "processor_config.json").write_text("{}")
    (folder / "preprocessor_config.json").write_text('{"patch_size": 14, "merge_size": 2}')
    return folder


def test_images_in_folders_and_a_model_become_a_spec_that_passes_its_check(
    init: Init, tmp_path: Path
) -> None:
    images(tmp_path / "pics")
    model(tmp_path / "models" / "vlm")
    said = init("specs", "--data", "pics", "--model", "models/vlm", "--name", "mine", "--yes").out
    assert "data: 2 images of pics; their texts are the names of their folders (cat, dog)\n" in said
    assert "\nno image could be opened: 2 files tried, the first is pics/cat" in said
    assert "specs/mine.yaml: no problems found" in said
    spec = (tmp_path / "specs" / "mine.yaml").read_text()
    assert 'path: "../models/vlm"' in spec
    assert 'image_root: "../pics"' in spec
    manifest = (tmp_path / "specs" / "mine.jsonl").read_text()
    assert manifest.startswith('{"image_path": "cat/1.jpg", "text": "cat"}\n')
    assert not (tmp_path / "specs" / "recipes.py").exists()


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
