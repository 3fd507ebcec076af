"""`image_pixels` replaces the processor's limits in samples, data set and export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from pipeline.consolidate.parts import gather_parts
from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.preprocess.processor_folders import hash_folder
from pipeline.preprocess.stage import run
from pipeline.train.export import copy_processor
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.configs.stages import ImagePixels, PreprocessConfig
from slurm_jobs.formats.processors.pixel_limits import with_image_pixels
from slurm_jobs.formats.records.task_context import ParentStage
from tests.pipeline.build import make_context, run_consolidate, run_preprocess
from tests.pipeline.kinds import encode_as_hugging_face, make_processor, write_kind

NATIVE = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm4v", "glm_ocr", "paddleocr_vl")
OTHERS = (
    "llava",
    "llava_siglip",
    "llava_next",
    "llava_onevision",
    "idefics3",
    "smolvlm",
    "internvl",
    "gemma3",
    "gemma4",
)
LIMITS = {"min": 10_000, "max": 20_000}
SIZES = ((30, 40), (110, 110), (400, 300), (1000, 90))


def make_config(folder: Path, kind: str, **changes: object) -> dict[str, object]:
    folder.mkdir()
    lines = ["image_path,text"]
    for number, size in enumerate(SIZES):
        Image.effect_noise(size, 90).convert("RGB").save(folder / f"{number}.png")
        lines.append(f"{number}.png,A red cup.")
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    processor = write_kind(kind, folder / "processor")
    return {
        "manifest": str(folder / "rows.csv"),
        "processor": str(processor),
        "max_tokens": 100_000,
        "image_decoding": "exact",
        **changes,
    }


@pytest.mark.parametrize("kind", NATIVE)
def test_images_have_the_limits_in_the_samples_the_data_set_and_the_export(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tmp_path / "data", kind, image_pixels=LIMITS)
    _, parts_dir = run_preprocess(tmp_path / "prep", config)
    _, folder = run_consolidate(tmp_path / "set", parts_dir)
    info, dataset = read_dataset_info(folder), open_dataset(folder)
    assert info.preprocess["image_pixels"] == LIMITS
    assert info.preprocess["processor_xxh3"] == hash_folder(folder / "processor")
    load = type(make_processor(kind).image_processor).from_pretrained
    theirs = load(folder / "processor")
    times = 2 if kind.startswith("glm") else 1  # GLM counts an image as often as it is repeated
    edges = (theirs.size["shortest_edge"], theirs.size["longest_edge"])
    assert edges == (10_000 * times, 20_000 * times)
    monkeypatch.setattr(make_processor(kind), "image_processor", theirs)
    samples = [dataset.sample(number) for number in range(len(SIZES))]
    assert len(samples) == len(SIZES)
    for sample in samples:
        (image,) = sample.images
        assert 10_000 <= image.shape[0] * image.shape[1] <= 20_000
        row = int(sample.key)
        items = [{"type": "image", "path": f"{row}.png"}]
        said = [{"type": "text", "text": "Describe the image."}]
        answer = [{"type": "text", "text": "A red cup."}]
        messages = [
            {"role": "user", "content": [*items, *said]},
            {"role": "assistant", "content": answer},
        ]
        expected = encode_as_hugging_face(kind, messages, tmp_path / "data")
        assert sample.input_ids.tolist() == list(expected["input_ids"][0])
    export = tmp_path / "export"
    export.mkdir()
    copy_processor(folder / "processor", export)
    assert load(export).size["longest_edge"] == 20_000 * times


def test_every_file_of_the_processor_that_has_limits_gets_them(tmp_path: Path) -> None:
    config = make_config(tmp_path / "data", "qwen2_5_vl", image_pixels={"max": 20_000})
    hub = {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136}
    hub |= {"max_pixels": 12_845_056, "patch_size": 14, "merge_size": 2}
    source = tmp_path / "data" / "processor"
    (source / "preprocessor_config.json").write_text(json.dumps(hub))
    run_preprocess(tmp_path / "prep", config)
    (folder,) = (tmp_path / "prep" / "output" / "processors").iterdir()
    named = json.loads((folder / "processor_config.json").read_text())["image_processor"]
    alone = json.loads((folder / "preprocessor_config.json").read_text())
    assert named["max_pixels"] == named["size"]["longest_edge"] == 20_000
    assert named["min_pixels"] == named["size"]["shortest_edge"] == 56 * 56
    assert alone["max_pixels"] == alone["size"]["longest_edge"] == 20_000
    assert alone["min_pixels"] == alone["size"]["shortest_edge"] == 3136
    assert json.loads((source / "preprocessor_config.json").read_text()) == hub


@pytest.mark.parametrize("kind", OTHERS)
def test_a_processor_without_such_limits_is_refused_with_its_own(kind: str, tmp_path: Path) -> None:
    config = make_config(tmp_path / "data", kind, image_pixels=LIMITS)
    with pytest.raises(StageConfigError, match="image_pixels limits images that keep") as caught:
        run_preprocess(tmp_path / "prep", config)
    key = {"llava_next": "image_grid_pinpoints", "llava_siglip": "size, one", "llava": "crop_size"}
    key |= {"internvl": "max_patches", "llava_onevision": "image_grid_pinpoints"}
    key |= {"gemma3": "size, one", "gemma4": "max_soft_tokens"}
    assert key.get(kind, "size.longest_edge") in str(caught.value)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max": 700}, r"max is 700, less than one token of this processor \(28 x 28 = 784"),
        ({"max": 2_000}, r"max is 2000, and .* enlarges images to 3136 pixels; set .*\.min"),
        (
            {"min": 2_000_000},
            r"min is 2000000, and .* reduces images to 1003520 pix.*\.max",
        ),
    ],
)
def test_limits_that_leave_no_size_are_refused(limits: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        with_image_pixels({"image_processor_type": "Qwen2VLImageProcessor"}, ImagePixels(**limits))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({}, "set min, max or both"),
        ({"min": 5, "max": 4}, "min is 5, more than max, which is 4"),
        ({"max": 0}, "max is 0; allowed is >= 1"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(limits: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PreprocessConfig(manifest="m", processor="p", image_pixels=ImagePixels(**limits))


def test_parts_of_other_limits_are_not_consolidated(tmp_path: Path) -> None:
    config = make_config(tmp_path / "data", "qwen2_5_vl")
    for number, most in enumerate((20_000, 30_000)):
        changed = config | {"image_pixels": {"max": most}}
        context = make_context(tmp_path / "prep", slice_index=number, num_slices=2, config=changed)
        run(changed, context)
    parent = ParentStage(
        stage="preprocess",
        run="preprocess",
        output_dir=tmp_path / "prep" / "output",
        num_slices=2,
    )
    with pytest.raises(StageError, match=r"image_pixels.* differ"):
        gather_parts(parent)


def test_smaller_images_cost_fewer_tokens(tmp_path: Path) -> None:
    config = make_config(tmp_path / "data", "qwen2_5_vl")
    (plain,), _ = run_preprocess(tmp_path / "plain", config)
    (small,), _ = run_preprocess(tmp_path / "small", config | {"image_pixels": {"max": 10_000}})
    assert small["num_samples"] == plain["num_samples"] == len(SIZES)
    assert small["num_tokens"] < plain["num_tokens"]
    assert small["num_pixels"] <= len(SIZES) * 10_000
