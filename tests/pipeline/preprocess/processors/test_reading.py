"""Processor folders: what is read from them, and which are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipeline.preprocess.processors import read_processor
from slurm_jobs.common.errors import StageConfigError


def test_clip_like_processor_is_understood(processor_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "clip"
    shutil.copytree(processor_dir, folder)
    path = folder / "preprocessor_config.json"
    values = json.loads(path.read_text())
    crop = {"height": 336, "width": 336}
    values |= {"size": {"shortest_edge": 336}, "crop_size": crop, "do_center_crop": True}
    path.write_text(json.dumps(values))
    llava = {
        "image_token": "<image>",
        "patch_size": 14,
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": "default",
    }
    (folder / "processor_config.json").write_text(json.dumps(llava))
    processor = read_processor(folder)
    assert processor.images.num_image_tokens == 576
    assert processor.images.shortest_edge == 336


@pytest.mark.parametrize(
    "size", [{"longest_edge": 512}, {"shortest_edge": 224}, {"height": 0, "width": 8}, "big"]
)
def test_images_without_one_size_are_refused(
    processor_dir: Path, tmp_path: Path, size: object
) -> None:
    folder = tmp_path / "other"
    shutil.copytree(processor_dir, folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "size": size}))
    with pytest.raises(StageConfigError, match="does not give images of one size"):
        read_processor(folder)


def test_missing_processor_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageConfigError, match="no such processor folder"):
        read_processor(tmp_path / "gone")


@pytest.mark.parametrize("key", ["do_resize", "do_rescale", "do_normalize"])
@pytest.mark.parametrize("own_file", [True, False])
def test_processor_that_leaves_a_step_out_is_refused_with_file_and_key(
    processor_dir: Path, tmp_path: Path, key: str, *, own_file: bool
) -> None:
    folder = tmp_path / "processor"
    shutil.copytree(processor_dir, folder)
    images, whole = folder / "preprocessor_config.json", folder / "processor_config.json"
    values = {**json.loads(images.read_text()), key: False}
    if own_file:
        images.write_text(json.dumps(values))
    else:
        images.unlink()
        whole.write_text(json.dumps({**json.loads(whole.read_text()), "image_processor": values}))
    name = (images if own_file else whole).name
    with pytest.raises(StageConfigError, match=rf"processor/{name}: `{key}` is false"):
        read_processor(folder)
