"""`init` on photos of 12 megapixels ends in a spec that trains on all of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from slurm_jobs.base.errors import SpecError, StageConfigError
from slurm_jobs.cli import main
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.formats.timings.step_records import read_steps, steps_path
from tests.end_to_end.driver import Driver
from tests.pipeline.build import run_preprocess
from tests.pipeline.kinds import write_kind
from tests.pipeline.models.tiny import write_tiny

NUM_PHOTOS = 10
PROCESSOR = {
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
}
"""`preprocessor_config.json` of Qwen2.5-VL-3B-Instruct."""
MODEL = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "max_position_embeddings": 128000,
    "num_attention_heads": 16,
    "num_hidden_layers": 36,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "vision_config": {"depth": 32, "hidden_size": 1280, "out_hidden_size": 2048},
}
"""What counts here of its `config.json`."""


def write_photos(folder: Path) -> None:
    """Ten photos with captions, in `photos/`."""
    (folder / "photos").mkdir()
    Image.radial_gradient("L").resize((4032, 3024)).convert("RGB").save(folder / "photo.jpg")
    for number in range(NUM_PHOTOS):
        shutil.copyfile(folder / "photo.jpg", folder / "photos" / f"{number}.jpg")
        (folder / "photos" / f"{number}.txt").write_text(f"A bright circle, number {number}.\n")


def use_processor_of_3b(model: Path) -> None:
    (model / "processor_config.json").unlink()
    (model / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten photos with captions, and a model folder with a small tokenizer."""
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder)
    model = write_kind("qwen2_5_vl", folder / "Qwen2.5-VL-3B-Instruct")
    use_processor_of_3b(model)
    (model / "config.json").write_text(json.dumps(MODEL))
    return folder


@pytest.fixture
def written(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[Path, str]:
    """The spec that `init` writes, which passes its check, and what `init` printed."""
    monkeypatch.chdir(tmp_path)
    words = ("--data", str(place / "photos"), "--model", str(place / "Qwen2.5-VL-3B-Instruct"))
    with pytest.raises(SystemExit) as ended:
        main.main(["init", "--local", "--yes", *words])
    assert ended.value.code == 0
    return tmp_path / "configs" / "finetune.yaml", capsys.readouterr().out


def preprocess_config(spec: Path, *overrides: str) -> dict[str, Any]:
    return dict(load(spec, overrides=overrides).spec.stages["preprocess"].config)


def test_the_spec_that_init_writes_trains_on_all_photos(
    written: tuple[Path, str], tmp_path: Path
) -> None:
    spec, said = written
    assert "images of 4032 x 3024 in the median" in said
    assert "100% exceed 2,048" in said
    assert "image_pixels.max is 1003520: 1,280 tokens an image at most" in said
    assert "configs/finetune.yaml: no problems found" in said
    with pytest.raises(SystemExit) as ended:
        main.main(["check", str(spec)])
    assert ended.value.code == 0
    (result,), _ = run_preprocess(tmp_path / "run", preprocess_config(spec))
    assert (result["num_samples"], result["num_rejected"]) == (NUM_PHOTOS, 0)
    assert result["num_tokens"] < NUM_PHOTOS * 2048


@pytest.mark.parametrize("max_tokens", [1024, 300])
def test_a_limit_that_is_too_low_fails_with_the_lengths_and_the_remedies(
    written: tuple[Path, str], tmp_path: Path, max_tokens: int
) -> None:
    spec, _ = written
    override = f"stages.preprocess.config.max_tokens={max_tokens}"
    with pytest.raises(SpecError, match="max_tokens"):  # before anything is queued
        preprocess_config(spec, override)
    config = {**preprocess_config(spec), "max_tokens": max_tokens}
    with pytest.raises(StageConfigError, match="10 of 10 rows are too long") as caught:
        run_preprocess(tmp_path / "run", config)
    said = str(caught.value)
    assert f"max_tokens is {max_tokens}; the rows over max_tokens have 1,3" in said
    remedy = max_tokens * 5 // 8 * 28 * 28
    assert f"Keep these rows by image_pixels.max={remedy} (smaller images" in said
    assert "max_too_long_share=1: " in said
    smaller = preprocess_config(
        spec, override, f"stages.preprocess.config.image_pixels.max={remedy}"
    )
    (result,), _ = run_preprocess(tmp_path / "smaller", smaller)
    assert result["num_samples"] == NUM_PHOTOS
    allowed = preprocess_config(spec, override, "stages.preprocess.config.max_too_long_share=1")
    with pytest.raises(StageConfigError, match="none of 10 rows became a sample"):
        run_preprocess(tmp_path / "allowed", allowed)


@pytest.mark.slow
def test_a_model_learns_all_photos_and_is_exported_with_their_size(local: Driver) -> None:
    write_photos(local.folder)
    model = write_kind("qwen2_5_vl", local.folder / "tiny")
    write_tiny("qwen2_5_vl", model)
    use_processor_of_3b(model)
    local.run("init", "--local", "--yes", "--data", "photos", "--model", "tiny")
    run_dir = local.submit("configs/finetune.yaml", "--set", "stages.train.config.num_epochs=4")
    assert local.wait(run_dir)["status"] == "completed"
    steps = read_steps(steps_path(run_dir / "timing/train/s00000.a0001", 0)).steps
    assert steps["num_samples"].sum() == 4 * NUM_PHOTOS
    exported = json.loads((run_dir / "data/train/model/preprocessor_config.json").read_text())
    assert exported["size"] == {"shortest_edge": 3136, "longest_edge": 1003520}
