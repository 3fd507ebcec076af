"""The small VLM: where images go into the text, what the loss is, how it is saved."""

import json
from dataclasses import dataclass

import pytest
import torch
from torch.nn import functional

from pipeline.models import SmallVLM, build_model, load_model, normalise_pixels
from pipeline.models.generate import generate, pad_left
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.train import LanguageConfig, ModelConfig, VisionConfig

IMAGE, PAD, EOS = 4, 0, 1


@dataclass(frozen=True)
class Facts:
    image_size: int = 32
    image_mean: tuple = (0.5, 0.5, 0.5)
    image_std: tuple = (0.5, 0.5, 0.5)
    image_token_id: int = IMAGE
    pad_token_id: int = PAD
    eos_token_id: int = EOS
    vocab_size: int = 40
    num_image_tokens: int = 4


CONFIG = ModelConfig(
    vision=VisionConfig(hidden_size=32, num_layers=2, num_heads=2),
    language=LanguageConfig(hidden_size=32, num_layers=2, num_heads=2),
)


@pytest.fixture
def model() -> SmallVLM:
    return build_model(CONFIG, Facts(), seed=3)


def make_images(num_images, seed=0):
    return torch.randn(num_images, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def test_image_tokens_become_patches_in_order(model):
    ids = torch.tensor([[7, *[IMAGE] * 4, 8, 9], [*[IMAGE] * 4, 5, PAD, PAD]])
    images = make_images(2)
    by_hand = model.language.model.embed_tokens(ids).clone()
    patches = model.projector(model.vision(pixel_values=images).last_hidden_state)
    by_hand[0, 1:5], by_hand[1, 0:4] = patches[0], patches[1]
    torch.testing.assert_close(model.embed(ids, images), by_hand)


def test_loss_is_the_sum_over_supervised_next_tokens(model):
    ids = torch.tensor([[*[IMAGE] * 4, 7, 8, 9]])
    labels = torch.tensor([[-100] * 5 + [8, 9]])
    images = make_images(1)
    loss = model(ids, images, labels)
    embeds = model.embed(ids, images)
    logits = model.language(inputs_embeds=embeds, use_cache=False).logits[0]
    by_hand = functional.cross_entropy(logits[4:6], torch.tensor([8, 9]), reduction="sum")
    torch.testing.assert_close(loss, by_hand)


def test_padding_on_the_right_changes_nothing(model):
    ids = torch.tensor([[*[IMAGE] * 4, 7, 8]])
    labels = torch.tensor([[-100] * 5 + [8]])
    padded = functional.pad(ids, (0, 3), value=PAD)
    padded_labels = functional.pad(labels, (0, 3), value=-100)
    images = make_images(1)
    loss = model(ids, images, labels)
    torch.testing.assert_close(model(padded, images, padded_labels), loss)


def test_batch_without_images_still_gives_every_parameter_a_gradient(model):
    ids = torch.tensor([[7, 8, 9]])
    model.train()
    model(ids, make_images(0), ids).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not any(p.grad.any() for p in model.vision.parameters())


def test_batched_generation_equals_one_by_one(model):
    model.eval()
    prompts = [[7, *[IMAGE] * 4, 8], [*[IMAGE] * 4, 9], [7, 8, 9, 10, *[IMAGE] * 4, 11], [12]]
    images = make_images(3)
    together = generate(model, prompts, images, max_new_tokens=6)
    shares = [images[:1], images[1:2], images[2:3], images[:0]]
    alone = [
        generate(model, [prompt], share, max_new_tokens=6)[0]
        for prompt, share in zip(prompts, shares, strict=True)
    ]
    assert together == alone


def test_cached_generation_equals_recomputing_everything(model):
    model.eval()
    prompt, images = [7, *[IMAGE] * 4, 8], make_images(1)
    expected = []
    for _ in range(5):
        ids = torch.tensor([prompt + expected])
        logits = model.language(inputs_embeds=model.embed(ids, images), use_cache=False).logits
        expected.append(int(logits[0, -1].argmax()))
    assert generate(model, [prompt], images, max_new_tokens=5) == [expected]


def test_generation_stops_at_the_end_token(model):
    model.eval()
    first = generate(model, [[7]], make_images(0), max_new_tokens=1)[0][0]
    model.language.config.eos_token_id = first
    assert generate(model, [[7], [7]], make_images(0), max_new_tokens=50) == [[], []]


def test_prompts_are_padded_on_the_left():
    ids, mask = pad_left([[5, 6], [7]], PAD)
    assert ids.tolist() == [[5, 6], [PAD, 7]]
    assert mask.tolist() == [[1, 1], [0, 1]]


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(0)
    one = build_model(CONFIG, Facts(), seed=5).state_dict()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    same = build_model(CONFIG, Facts(), seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    other = build_model(CONFIG, Facts(), seed=6).state_dict()
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["projector.0.weight"], other["projector.0.weight"])


def test_saved_model_loads_equal(model, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name


def test_folder_of_another_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava"}))
    with pytest.raises(StageConfigError, match="model_type is 'llava'"):
        load_model(tmp_path)


def test_weights_that_do_not_fit_the_config_are_refused(model, tmp_path):
    model.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    values["language"]["num_hidden_layers"] = 1
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(StageConfigError, match="does not fit"):
        load_model(tmp_path)


def test_model_that_does_not_fit_the_data_names_both_numbers():
    with pytest.raises(StageConfigError, match="picture: model 4, data set 16"):
        build_model(CONFIG, Facts(num_image_tokens=16), seed=0)
    with pytest.raises(StageConfigError, match="patch_size is 16"):
        build_model(CONFIG, Facts(image_size=40), seed=0)


def test_model_of_a_folder_must_see_and_end_as_the_data_set_says(model, tmp_path):
    model.save_pretrained(tmp_path)
    config = ModelConfig(path=str(tmp_path))
    build_model(config, Facts(image_mean=(0.5 + 1e-9,) * 3), seed=0)
    with pytest.raises(StageConfigError, match=r"image mean: model \(0\.5, .* data set \(0\.4"):
        build_model(config, Facts(image_mean=(0.4,) * 3), seed=0)
    with pytest.raises(StageConfigError, match="end token: model 1, data set 2"):
        build_model(config, Facts(eos_token_id=2), seed=0)


def test_pixels_are_scaled_shifted_and_channels_first():
    images = torch.randint(0, 256, (2, 5, 4, 3), dtype=torch.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 1.0)
    expected = ((images / 255 - torch.tensor(mean)) / torch.tensor(std)).permute(0, 3, 1, 2)
    found = normalise_pixels(images, mean=mean, std=std)
    assert found.shape == (2, 3, 5, 4)
    torch.testing.assert_close(found, expected)
