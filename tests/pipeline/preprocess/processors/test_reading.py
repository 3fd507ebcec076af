"""Processor folders: what is read from them, and which are refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.processors.folder import read_processor


def test_a_processor_of_the_clip_kind_is_understood(processor_dir: Path, tmp_path: Path) -> None:
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


def write_folder(folder: Path, images: dict[str, object], **processor: object) -> Path:
    """A folder as on hubs: each key of the image processor that is not given is its class's."""
    folder.mkdir()
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    if processor:
        (folder / "processor_config.json").write_text(json.dumps(processor))
    return folder


QWEN = {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2VLProcessor"}
SMOLVLM = {"image_processor_type": "SmolVLMImageProcessor", "size": {"longest_edge": 2048}}
INTERNVL = {
    "image_processor_type": "GotOcr2ImageProcessorFast",
    "processor_class": "InternVLProcessor",
    "size": {"height": 448, "width": 448},
    "crop_to_patches": False,
    "min_patches": 1,
    "max_patches": 12,
}
LLAVA_NEXT = {"image_processor_type": "LlavaNextImageProcessor", "aspect_ratio_setting": "anyres"}


def test_qwens_folder_on_hubs_is_read(tmp_path: Path) -> None:
    """It has no processor_config.json, and names neither size nor filter."""
    more = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    area = {"min_pixels": 3136, "max_pixels": 12_845_056}
    processor = read_processor(write_folder(tmp_path / "qwen", {**QWEN, **more, **area}))
    assert processor.images.max_pixels == 12_845_056
    assert processor.images.model_inputs() == {
        "image_kind": "native",
        "image_height": None,
        "image_width": None,
        "num_image_tokens": None,
        "patch_size": 14,
        "merge_size": 2,
        "temporal_patch_size": 2,
    }
    assert (processor.resample, processor.images.image_token) == (3, "<|image_pad|>")


def test_qwen3s_folder_on_hubs_is_read(tmp_path: Path) -> None:
    images = {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "processor_class": "Qwen3VLProcessor",
        "size": {"longest_edge": 16_777_216, "shortest_edge": 65_536},
        "patch_size": 16,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    processor = read_processor(write_folder(tmp_path / "qwen3", images))
    assert (processor.images.min_pixels, processor.images.patch_size) == (65_536, 16)
    assert processor.image_mean == (0.5, 0.5, 0.5)


def test_smolvlms_folder_on_hubs_is_read(tmp_path: Path) -> None:
    images = {**SMOLVLM, "max_image_size": {"longest_edge": 512}, "do_pad": True, "resample": 1}
    folder = write_folder(
        tmp_path / "smolvlm", images, processor_class="SmolVLMProcessor", image_seq_len=64
    )
    kind = read_processor(folder).images
    assert len(kind.plan((1200, 800)).recipes) == 4 * 3 + 1
    assert kind.model_inputs()["num_image_tokens"] == 64
    assert (kind.model_inputs()["image_kind"], kind.tile_size) == ("tiled", 512)


def test_internvls_folder_on_hubs_is_read(tmp_path: Path) -> None:
    """Its images are cut, although its file says that they are not."""
    empty = dict.fromkeys(("crop_size", "device", "do_center_crop", "disable_grouping"))
    folder = write_folder(tmp_path / "internvl", INTERNVL | empty, image_seq_length=256)
    kind = read_processor(folder).images
    assert len(kind.plan((1200, 800)).recipes) == 3 * 2 + 1
    assert kind.plan((1200, 800)).text == "<img>" + "<IMG_CONTEXT>" * 7 * 256 + "</img>"
    assert (kind.model_inputs()["num_image_tokens"], kind.tile_size) == (256, 448)


def test_llava_nexts_folder_on_hubs_is_read(tmp_path: Path) -> None:
    images = {
        **LLAVA_NEXT,
        "crop_size": {"height": 336, "width": 336},
        "size": {"shortest_edge": 336},
    }
    folder = write_folder(tmp_path / "next", images, patch_size=14)
    kind = read_processor(folder).images
    assert (kind.tile_size, kind.grids[0]) == (336, (672, 336))


GEMMA3 = {
    "image_processor_type": "Gemma3ImageProcessor",
    "processor_class": "Gemma3Processor",
    "do_convert_rgb": None,
    "do_pan_and_scan": None,
    "image_seq_length": 256,
    "pan_and_scan_max_num_crops": None,
    "resample": 2,
    "size": {"height": 896, "width": 896},
}


def test_gemma3s_folder_on_hubs_is_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "gemma", GEMMA3, image_seq_length=256)
    kind = read_processor(folder).images
    assert kind.plan((1200, 800)).placeholder == (("<image_soft_token>", 256),)
    assert (kind.printed_token, kind.model_inputs()["image_kind"]) == ("<start_of_image>", "fixed")
    assert kind.written == "\n\n<start_of_image><image_soft_token><end_of_image>\n\n"
    own = {"image_token": "<i>", "boi_token": "<b>", "eoi_token": "<e>"}
    assert read_processor(folder, own).images.written == "\n\n<b><i><e>\n\n"


GEMMA4 = {
    "image_processor_type": "Gemma4ImageProcessor",
    "do_normalize": False,
    "image_seq_length": 280,
    "max_soft_tokens": 280,
}


def test_gemma4s_folder_on_hubs_is_read(tmp_path: Path) -> None:
    """Its pixels are only scaled to 0..1."""
    folder = write_folder(tmp_path / "gemma", GEMMA4, processor_class="Gemma4Processor")
    processor = read_processor(folder)
    placeholder = (("<|image>", 1), ("<|image|>", 266), ("<image|>", 1))
    assert processor.images.plan((4032, 3024)).placeholder == placeholder
    assert (processor.image_mean, processor.image_std) == ((0.0,) * 3, (1.0,) * 3)
    assert processor.images.model_inputs()["temporal_patch_size"] == 1


def test_numbers_of_tokens_that_gemma4_was_not_made_for_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "gemma", {**GEMMA4, "max_soft_tokens": 100})
    with pytest.raises(StageConfigError, match=r"max_soft_tokens 100; expected one of \(70, 140"):
        read_processor(folder)


def test_crops_of_gemma3s_images_are_refused_by_name(tmp_path: Path) -> None:
    crops = {"do_pan_and_scan": True, "pan_and_scan_max_num_crops": 4}
    folder = write_folder(tmp_path / "gemma", {**GEMMA3, **crops})
    with pytest.raises(StageConfigError, match="do_pan_and_scan True; crops of an image are not"):
        read_processor(folder)


def test_tokens_that_the_tokenizer_names_come_before_the_usual_ones(tmp_path: Path) -> None:
    own = {"image_token": "<img>", "vision_start_token": "<v>", "vision_end_token": "</v>"}
    folder = write_folder(tmp_path / "qwen", QWEN)
    kind = read_processor(folder, own).images
    assert (kind.image_token, kind.wrapping) == ("<img>", ("<v>", "</v>"))


def test_values_within_the_processors_own_file_come_first(
    processor_dir: Path, tmp_path: Path
) -> None:
    """As transformers reads them: its own file may be next to one of an older version."""
    folder = tmp_path / "both"
    shutil.copytree(processor_dir, folder)
    whole, images = folder / "processor_config.json", folder / "preprocessor_config.json"
    newer = {**json.loads(images.read_text()), "size": {"height": 48, "width": 48}}
    whole.write_text(json.dumps({**json.loads(whole.read_text()), "image_processor": newer}))
    assert read_processor(folder).images.height == 48


ONEVISION = {
    "image_processor_type": "LlavaOnevisionImageProcessor",
    "processor_class": "LlavaOnevisionProcessor",
    "image_mean": [0.5, 0.5, 0.5],
    "do_pad": True,
}


def test_llava_onevisions_folder_on_hubs_is_read(tmp_path: Path) -> None:
    more = {"num_image_tokens": 729, "vision_feature_select_strategy": "full"}
    kind = read_processor(write_folder(tmp_path / "ov", ONEVISION, **more)).images
    assert (kind.tile_size, len(kind.grids), kind.max_tiles) == (384, 36, 9)
    assert (kind.background, kind.drops_first_token) == ((127, 127, 127), False)
    assert kind.plan((700, 300), num_images=3).text == "<image>" * 730


@pytest.mark.parametrize(
    ("images", "processor", "words"),
    [
        ({"image_processor_type": "FuyuImageProcessor"}, {}, r"'Fuyu.* understood are CLIP"),
        ({"size": {"height": 8, "width": 8}}, {}, "image_processor_type None is not understood"),
        ({**QWEN, "do_thumbnail": True}, {}, r"`do_thumbnail: True` is not known of Qwen2VLImage"),
        ({**QWEN, "patchsize": 16}, {}, r"`patchsize: 16` is not known .*\(`patch_size` is\)"),
        ({**QWEN, "size": {"height": 8, "width": 8}}, {}, "expected shortest_edge and longest_"),
        ({**QWEN, "min_pixels": 9, "max_pixels": 8}, {}, "least area is 9 pixels, the greatest 8"),
        ({**QWEN, "patch_size": 0}, {}, "patch_size 0; expected a whole number, 1 or more"),
        ({**QWEN, "resample": "bicubic"}, {}, "resample 'bicubic', expected Pillow's number"),
        ({**QWEN, "image_mean": [0.5]}, {}, r"image_mean \[0.5\], expected three numbers"),
        ({**QWEN, "processor_class": "Glm4vProcessor"}, {}, r"'Glm4vProcessor' .* Qwen2VLProc"),
        ({**SMOLVLM, "size": {"shortest_edge": 8}}, {}, "size .* expected longest_edge"),
        (SMOLVLM, {"processor_class": "PaliGemmaProcessor"}, "'PaliGemmaProcessor' is not unders"),
        ({**LLAVA_NEXT, "crop_size": {"height": 9, "width": 8}}, {}, "expected squares of crop_"),
        ({**LLAVA_NEXT, "image_grid_pinpoints": [[300, 224]]}, {}, "expected multiples of the siz"),
        ({**LLAVA_NEXT, "image_grid_pinpoints": [[448, 224]]}, {}, "`patch_size` is missing"),
        ({**INTERNVL, "size": {"height": 9, "width": 8}}, {}, "size .* expected square tiles"),
        ({**INTERNVL, "size": {"shortest_edge": 8}}, {}, "size .* expected height and width"),
        ({**INTERNVL, "min_patches": 13}, {}, "min_patches 13; expected at most `max_pa.* 12"),
        ({**INTERNVL, "max_patches": 10**9}, {}, "max_patches 1000000000; expected at most 1024"),
        ({**INTERNVL, "use_thumbnail": True}, {}, "`use_thumbnail: True` is not known of GotOcr2"),
        ({**INTERNVL, "processor_class": "GotOcr2Processor"}, {}, "'GotOcr2.* InternVLProcessor"),
        (ONEVISION, {}, "`num_image_tokens` is missing"),
        (ONEVISION, {"vision_aspect_ratio": "anyres"}, "'anyres', expected anyres_max_NUMBER"),
        ({**ONEVISION, "image_mean": [2, 0, 0]}, {"num_image_tokens": 9}, "from 0 to 1"),
        ({**ONEVISION, "image_mean": 0.5}, {"num_image_tokens": 9}, "expected three numbers"),
        ({**ONEVISION, "image_grid_pinpoints": [[400, 384]]}, {}, "expected multiples of the siz"),
        ({**ONEVISION, "size": {"shortest_edge": 384}}, {}, "expected height and width"),
        ({"image_processor_type": "LlavaImageProcessor", "do_pad": True}, {}, "`do_pad: True` is"),
        ({"image_processor_type": "CLIPImageProcessor"}, {}, "`patch_size` is missing"),
    ],
)
def test_folder_that_would_not_be_honoured_is_refused(
    tmp_path: Path, images: dict[str, object], processor: dict[str, object], words: str
) -> None:
    folder = write_folder(tmp_path / "p", images, **processor)
    with pytest.raises(StageConfigError, match=rf"p/(pre)?processor_config\.json: .*{words}"):
        read_processor(folder)


@pytest.mark.parametrize("text", ["[]", "3", "{", "\xff"])
def test_file_that_is_no_json_object_is_named(tmp_path: Path, text: str) -> None:
    folder = write_folder(tmp_path / "p", QWEN)
    (folder / "processor_config.json").write_text(text, encoding="latin-1")
    with pytest.raises(StageConfigError, match=r"p/processor_config\.json: (a JSON|no valid JSON)"):
        read_processor(folder)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"patch_size": 0}, "`patch_size` is 0, expected a whole number, 1 or more"),
        ({"patch_size": "14"}, "`patch_size` is '14', expected a whole number, 1 or more"),
        ({"patch_size": 400}, "`patch_size` is 400, more than the 336 pixels of the side"),
        ({"patch_size": 14, "num_additional_image_tokens": -1}, "is -1, expected a whole"),
        ({}, "`patch_size` is missing"),
    ],
)
def test_numbers_that_give_no_image_tokens_are_refused(
    tmp_path: Path, more: dict[str, object], problem: str
) -> None:
    images = {
        **LLAVA_NEXT,
        "crop_size": {"height": 336, "width": 336},
        "size": {"shortest_edge": 336},
    }
    folder = write_folder(tmp_path / "next", images, processor_class="LlavaNextProcessor", **more)
    with pytest.raises(StageConfigError, match=re.escape(problem)):
        read_processor(folder)
