"""Image features in the places of image tokens, and gradients without images."""

import torch

from tests.pipeline.models.small import IMAGE, PAD, embeds_of, loss_of, make_images


def test_image_tokens_become_patches_in_order(model):
    ids = torch.tensor([[7, *[IMAGE] * 4, 8, 9], [*[IMAGE] * 4, 5, PAD, PAD]])
    images = make_images(2)
    by_hand = model.language.model.embed_tokens(ids).clone()
    patches = model.projector(model.vision(**images).last_hidden_state)
    by_hand[0, 1:5], by_hand[1, 0:4] = patches[0], patches[1]
    torch.testing.assert_close(embeds_of(model, ids, images), by_hand)


def test_batch_without_images_still_gives_every_parameter_a_gradient(model):
    ids = torch.tensor([[7, 8, 9]])
    model.train()
    labels = torch.tensor([[-100, 8, 9]])
    loss_of(model, ids, make_images(0), labels).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not any(p.grad.any() for p in model.vision.parameters())


def test_loss_of_a_batch_without_images_stays_finite_if_features_overflow(model):
    torch.nn.init.constant_(model.projector[0].weight, float("inf"))
    ids, labels = torch.tensor([[7, 8, 9]]), torch.tensor([[-100, 8, 9]])
    assert torch.isfinite(loss_of(model, ids, make_images(0), labels))
