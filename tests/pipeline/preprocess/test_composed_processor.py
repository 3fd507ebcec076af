"""A processor of two folders: what is taken of each, and what does not go together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.preprocess.chat.tokenizer import load_tokenizer
from pipeline.preprocess.composed_processor import SIGLIP_DEFAULTS, write_composed
from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.manifest import read_manifest
from pipeline.preprocess.processor_folders import hash_folder
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.stages import ComposedProcessor
from slurm_jobs.formats.processors.folder import read_processor
from tests.pipeline.build import CHAT_TEMPLATE, run_consolidate, run_preprocess, write_csv_manifest
from tests.pipeline.models.tiny_towers import (
    CHATML_TOKENS,
    QWEN25_TEMPLATE,
    VISION,
    write_image_processor,
    write_siglip,
    write_tokenizer,
)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """As a SigLIP's folder, with a text tokenizer of its own, which is not taken."""
    folder = write_image_processor(write_siglip(tmp_path / "siglip"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    (folder / "spiece.model").write_text("not ours")
    return folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = write_tokenizer(tmp_path / "qwen")
    (folder / "generation_config.json").write_text("{}")
    return folder


def compose(images: Path, text: Path, **options: Any) -> Path:
    parts = ComposedProcessor(images=str(images), text=str(text), **options)
    return write_composed(parts, load_tokenizer(text), images.parent / "processors")


def edit_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_processor_combines_images_of_one_folder_with_tokens_of_the_other(
    images: Path, text: Path
) -> None:
    folder = compose(images, text)
    assert {path.name for path in folder.iterdir()} == {
        *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
        *("preprocessor_config.json", "processor_config.json"),
    }
    assert (folder / "tokenizer.json").read_bytes() == (text / "tokenizer.json").read_bytes()
    found = read_processor(folder)
    assert found.images.model_inputs()["image_height"] == VISION["image_size"]
    assert found.images.plan((50, 20)).placeholder == (("<|image_pad|>", 4),)
    assert found.image_mean == (0.5, 0.5, 0.5)


def test_same_parts_give_the_same_folder_and_any_change_of_them_another(
    images: Path, text: Path
) -> None:
    first = compose(images, text)
    before = hash_folder(first)
    assert compose(images, text) == first
    assert hash_folder(first) == before
    edit_json(images / "preprocessor_config.json", resample=2)
    second = compose(images, text)
    write_tokenizer(text, tokens=(*CHATML_TOKENS, "<|more|>"))
    third = compose(images, text)
    assert len({hash_folder(folder) for folder in (first, second, third)}) == 3
    assert hash_folder(first) == before


def test_transformers_makes_the_same_tokens_and_pixels_with_it(
    images: Path, text: Path, tmp_path: Path
) -> None:
    from transformers import AutoProcessor

    folder = compose(images, text)
    pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "m.csv").write_text("image_path,text\na.png,a cup\n")
    (row,) = read_manifest(tmp_path / "m.csv", None, prompt="What?", system_prompt="")
    ours = SampleEncoder(folder, image_root=tmp_path, image_decoding="exact").encode_prompt(row)
    chat = [
        {
            "role": "user",
            "content": [
                {"type": "image", "image": Image.fromarray(pixels)},
                {"type": "text", "text": "What?"},
            ],
        }
    ]
    theirs = AutoProcessor.from_pretrained(folder).apply_chat_template(
        chat, tokenize=True, return_dict=True, add_generation_prompt=True
    )
    assert ours.input_ids.tolist() == np.asarray(theirs["input_ids"]).reshape(-1).tolist()
    (image,) = ours.images
    values = (image.astype(np.float32) / 255 - 0.5) / 0.5
    found = np.asarray(theirs["pixel_values"])[0]
    np.testing.assert_allclose(found, np.moveaxis(values, -1, 0), atol=1e-6)


def test_answers_of_a_base_model_end_with_the_turn(images: Path, tmp_path: Path) -> None:
    base = write_tokenizer(tmp_path / "base", eos_token="<|endoftext|>")
    named = {"content": "<|endoftext|>", "lstrip": False, "normalized": False, "rstrip": False}
    edit_json(base / "tokenizer_config.json", eos_token={"__type": "AddedToken", **named})
    (base / "special_tokens_map.json").write_text(json.dumps({"eos_token": named}))
    assert load_tokenizer(base).eos_token == "<|endoftext|>"
    assert load_tokenizer(compose(images, base)).eos_token == "<|im_end|>"
    marked = tmp_path / "own.jinja"
    marked.write_text(
        CHAT_TEMPLATE.replace("<|end|>", "<|im_end|>").replace("<image>", "<|image_pad|>")
    )
    folder = compose(images, base, template=str(marked))
    assert load_tokenizer(folder).eos_token == "<|endoftext|>"
    assert (folder / "chat_template.jinja").read_text() == marked.read_text()


def test_model_without_a_template_gets_chatml_without_a_system_prompt(
    images: Path, tmp_path: Path
) -> None:
    folder = compose(images, write_tokenizer(tmp_path / "base", template=None))
    tokenizer = load_tokenizer(folder)
    chat = [{"role": "user", "content": "So?"}]
    rendered = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert rendered == "<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n"


def test_image_processor_of_transformers_5_is_found_in_the_processor_file(
    images: Path, text: Path
) -> None:
    before = compose(images, text)
    own = json.loads((images / "preprocessor_config.json").read_text())
    (images / "processor_config.json").write_text(json.dumps({"image_processor": own}))
    (images / "preprocessor_config.json").unlink()
    assert compose(images, text) == before


def test_sizes_that_a_folder_leaves_out_are_those_of_the_class(images: Path, text: Path) -> None:
    from transformers import SiglipVisionConfig

    defaults = SiglipVisionConfig()
    assert {name: getattr(defaults, name) for name in SIGLIP_DEFAULTS} == SIGLIP_DEFAULTS
    edit_json(images / "config.json", vision_config={"model_type": "siglip_vision_model"})
    write_image_processor(images, side=224)
    assert read_processor(compose(images, text)).images.model_inputs()["num_image_tokens"] == 196


def test_vision_model_alone_is_taken_as_well(tmp_path: Path, text: Path) -> None:
    folder = write_image_processor(write_siglip(tmp_path / "vision", whole=False))
    assert read_processor(compose(folder, text)).images.model_inputs()["num_image_tokens"] == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "siglip2"}, r"'siglip2' \(flexible resolution\); processor\.images is the"),
        ({"model_type": "clip"}, r"config\.json: model_type is 'clip'; processor\.images is the"),
        (
            {"vision_config": {"image_size": 64, "patch_size": 16}},
            r"makes pictures of 32 x 32 pixels, and the encoder of config\.json takes 64 x 64",
        ),
        ({"vision_config": {"patch_size": "x"}}, r"patch_size is 'x', expected a whole number"),
    ],
)
def test_images_of_another_kind_or_size_are_refused(
    images: Path, text: Path, changes: dict[str, Any], words: str
) -> None:
    edit_json(images / "config.json", **changes)
    with pytest.raises(StageConfigError, match=words):
        compose(images, text)


def test_folder_without_an_image_processor_is_refused(images: Path, text: Path) -> None:
    (images / "preprocessor_config.json").unlink()
    with pytest.raises(StageConfigError, match=r"preprocessor_config\.json: missing"):
        compose(images, text)


def test_image_token_that_the_tokenizer_lacks_is_refused(images: Path, tmp_path: Path) -> None:
    qwen2 = write_tokenizer(tmp_path / "qwen2", tokens=CHATML_TOKENS[:3])
    words = r"qwen2: '<\|image_pad\|>' is not a token .* processor\.image_token .*<\|im_start\|>\)"
    with pytest.raises(StageConfigError, match=words):
        compose(images, qwen2)


def test_template_that_is_not_chatml_is_refused_with_what_differs(
    images: Path, tmp_path: Path
) -> None:
    thinking = QWEN25_TEMPLATE.replace("assistant\\n' }}", "assistant\\n<think>' }}")
    folder = write_tokenizer(tmp_path / "other", template=thinking)
    words = r"(?s)other: its chat template is not ChatML .*<think>', ChatML .* processor\.templ"
    with pytest.raises(StageConfigError, match=words):
        compose(images, folder)
    plain = write_tokenizer(tmp_path / "plain", tokens=("<|image_pad|>",), eos_token="<|eos|>")
    with pytest.raises(
        StageConfigError, match=r"'<\|im_start\|>' is not a token .*not ChatML: give"
    ):
        compose(images, plain)


@pytest.mark.parametrize("num_slices", [1, 3])
def test_data_set_is_made_with_it_and_keeps_it(
    images: Path, text: Path, tmp_path: Path, num_slices: int
) -> None:
    from pipeline.data.dataset import open_dataset

    config = {
        "manifest": str(write_csv_manifest(tmp_path / "source", 9)),
        "processor": {"images": str(images), "text": str(text)},
        "num_threads": 1,
    }
    results, parts_dir = run_preprocess(tmp_path / "prep", config, num_slices)
    assert sum(result["num_samples"] for result in results) == 9
    (made,) = (parts_dir / "processors").iterdir()
    _, dataset_dir = run_consolidate(tmp_path / "set", parts_dir, num_slices)
    assert hash_folder(dataset_dir / "processor") == hash_folder(made)
    dataset = open_dataset(dataset_dir)
    assert dataset.info.preprocess["processor_xxh3"] == hash_folder(made)
    assert (dataset.info.image_token, dataset.info.num_image_tokens) == ("<|image_pad|>", 4)
    tokenizer = load_tokenizer(dataset_dir / "processor")
    sample = dataset.sample(0)
    told = tokenizer.decode(sample.input_ids)
    learned = tokenizer.decode(sample.input_ids[sample.labels >= 0])
    assert told.startswith('<|im_start|>system\nYou are Qwen, created by "somebody".<|im_end|>\n')
    assert "<|im_start|>user\n" + "<|image_pad|>" * 4 + "Describe the image.<|im_end|>" in told
    assert learned.endswith("<|im_end|>")
    assert told.endswith("<|im_start|>assistant\n" + learned + "\n")
