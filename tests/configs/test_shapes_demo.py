"""The demo's own pictures, captions and processor."""

import importlib.util
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image, ImageOps, UnidentifiedImageError

from slurm_jobs.base.errors import StageConfigError
from tests.contexts import make_context

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shapes_demo():
    spec = importlib.util.spec_from_file_location("shapes_demo", ROOT / "configs/shapes_demo.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["shapes_demo"] = module
    spec.loader.exec_module(module)
    return module


def context_for(folder):
    return make_context("render", folder, output_dir=folder)


@pytest.fixture(scope="module")
def rendered(shapes_demo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "render"
    config = {"num_train": 120, "num_heldout": 48, "num_broken": 4, "max_side_px": 200}
    return folder, shapes_demo.render(config, context_for(folder))


def read_rows(folder, split):
    return [json.loads(line) for line in (folder / f"{split}.jsonl").read_text().splitlines()]


def caption(row):
    return row["messages"][1]["content"][0]["text"]


def test_heldout_set_has_every_caption(rendered):
    folder, result = rendered
    assert result["num_captions"] == 48
    assert len({caption(row) for row in read_rows(folder, "heldout")}) == 48


def test_heldout_pictures_are_not_training_pictures(rendered):
    folder, _ = rendered
    train, heldout = (
        {path.read_bytes() for path in (folder / "images" / split).iterdir()}
        for split in ("train", "heldout")
    )
    assert not train & heldout


def test_every_kind_of_broken_picture_is_there(rendered):
    folder, _ = rendered
    problems = Counter()
    for row in read_rows(folder, "train"):
        try:
            Image.open(folder / row["images"][0]).load()
        except FileNotFoundError:
            problems["missing"] += 1
        except UnidentifiedImageError:
            problems["no image"] += 1  # an empty file and a text
        except OSError:
            problems["truncated"] += 1
    assert problems == {"missing": 1, "no image": 2, "truncated": 1}


def test_pictures_are_of_many_kinds_and_sizes(rendered):
    folder, _ = rendered
    images = [Image.open(path) for path in (folder / "images/heldout").iterdir()]
    assert {image.format for image in images} == {"JPEG", "PNG"}
    assert len({image.size for image in images}) > 40
    assert any(image.getexif().get(0x0112) in (3, 6, 8) for image in images)


def test_turned_pictures_look_as_drawn_after_their_exif_is_applied(shapes_demo, tmp_path):
    config = shapes_demo.RenderConfig(num_broken=0)
    plan = shapes_demo.plan_pictures(config, tmp_path, "train", 60, 0)
    num_turned = 0
    for picture in plan:
        path = tmp_path / f"{picture.path.stem}.jpg"
        shapes_demo._save(replace(picture, path=path), config)
        stored = Image.open(path)
        upright = ImageOps.exif_transpose(stored)
        drawn = shapes_demo.draw(picture, config)
        num_turned += stored.getexif().get(0x0112) is not None
        assert upright.size == drawn.size
        middle = (drawn.width // 2, drawn.height // 2)
        difference = zip(upright.getpixel(middle), drawn.getpixel(middle), strict=True)
        assert max(abs(a - b) for a, b in difference) < 60
    assert num_turned >= 3


def test_size_words_keep_apart_after_resizing(shapes_demo):
    (_, small), (big, _) = shapes_demo.SIZES["small"], shapes_demo.SIZES["big"]
    # Resizing to a square stretches a shape by at most the aspect ratio.
    assert small < big / shapes_demo.MAX_ASPECT


def test_same_seed_renders_the_same_bytes(shapes_demo, rendered, tmp_path):
    folder, _ = rendered
    config = {"num_train": 120, "num_heldout": 48, "num_broken": 4, "max_side_px": 200}
    shapes_demo.render({**config, "num_threads": 1}, context_for(tmp_path / "again"))
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "progress.json":
            again = tmp_path / "again" / path.relative_to(folder)
            assert again.read_bytes() == path.read_bytes(), path


def test_tokenizer_gives_each_word_one_token_and_masks_the_answer(rendered):
    from transformers import AutoTokenizer

    folder, _ = rendered
    tokenizer = AutoTokenizer.from_pretrained(folder / "processor")
    row = read_rows(folder, "train")[0]
    encoded = tokenizer.apply_chat_template(
        row["messages"], return_dict=True, return_assistant_tokens_mask=True
    )
    masked = zip(encoded["input_ids"], encoded["assistant_masks"], strict=True)
    answer = [token for token, mask in masked if mask]
    assert len(answer) == 5
    assert tokenizer.decode(answer) == f"{caption(row)}<|end|>"
    assert encoded["input_ids"].count(tokenizer.convert_tokens_to_ids("<image>")) == 1


def test_chat_template_trains_on_the_assistant_alone(rendered):
    from pipeline.preprocess.chat.tokenizer import load_chat_tokenizer

    chat = load_chat_tokenizer(rendered[0] / "processor", "<image>")
    tokens = chat.encode_conversation(
        [
            {"role": "system", "content": [{"type": "text", "text": "red"}]},
            {"role": "user", "content": [{"type": "text", "text": "Describe"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "ring"}]},
        ]
    )
    assert chat.tokenizer.decode(tokens.input_ids[tokens.supervised]) == "ring<|end|>"
    words = "red<|user|>Describe<|assistant|>ring<|end|>"
    assert chat.tokenizer.decode(tokens.input_ids) == words


def test_unknown_settings_and_bad_numbers_are_refused(shapes_demo, tmp_path):
    with pytest.raises(StageConfigError, match="did you mean `num_train`"):
        shapes_demo.render({"num_trian": 5}, context_for(tmp_path / "a"))
    with pytest.raises(ValueError, match="num_broken is 9"):
        shapes_demo.render({"num_train": 5, "num_broken": 9}, context_for(tmp_path / "b"))
