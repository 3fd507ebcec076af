"""The small VLM of the tests, with its pictures and prompts."""

import torch

from pipeline.models.data_facts import DataFacts
from pipeline.models.generation import Prompt
from pipeline.models.layouts.image_layout import StoredImages
from slurm_jobs.formats.configs.model_parts import LanguageConfig, ModelConfig, VisionConfig
from tests.pipeline.infos import make_info

IMAGE, PAD, EOS = 4, 0, 1


def make_facts(**changes):
    """Of a data set with images of 32 pixels, 4 tokens each."""
    size = changes.pop("image_size", 32)
    eos = changes.pop("eos_token_id", EOS)
    info = make_info(image_height=size, image_width=size, **changes)
    return DataFacts(info=info, eos_token_id=eos, vocab_size=40)


CONFIG = ModelConfig(
    vision=VisionConfig(hidden_size=32, num_layers=2, num_heads=2),
    language=LanguageConfig(hidden_size=32, num_layers=2, num_heads=2),
)


def make_images(num_images, seed=0):
    """What the vision tower takes; nothing without an image."""
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(num_images, 3, 32, 32, generator=draw)
    return {"pixel_values": values} if num_images else {}


def loss_of(model, ids, images, labels):
    places = torch.nonzero(labels.flatten() != -100).flatten()
    losses = model(
        input_ids=ids, supervised=places - 1, targets=labels.flatten()[places], vision=images
    )
    return losses.sum()


def embeds_of(model, ids, images):
    return model.embed(ids, images)[0]


def make_prompts(prompts, seed=0):
    """With an image for each that has image tokens."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for ids in prompts:
        num_images = ids.count(IMAGE) // 4
        shape = (num_images * 32 * 32, 3)
        pixels = torch.randint(0, 256, shape, generator=draw, dtype=torch.uint8)
        sizes = torch.tensor([[32, 32]] * num_images).reshape(-1, 2)
        images = StoredImages(pixels=pixels, sizes=sizes, pictures=None)
        found.append(Prompt(input_ids=ids, images=images))
    return found
