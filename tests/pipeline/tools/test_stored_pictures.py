"""Stored pictures for a page: those of the shard, or smaller ones."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from pipeline.data.dataset import open_dataset
from pipeline.tools import show_samples
from tests.pipeline.tools.asking import ask


@pytest.mark.parametrize("image_format", ["png", "jpeg", "raw"])
def test_pictures_are_those_of_the_shard(make_dataset, image_format):
    folder = make_dataset(5, image_format=image_format)
    dataset = open_dataset(folder)
    answer = ask(folder, with_pictures=True)
    for number, sample in enumerate(answer["samples"]):
        (picture,) = sample["pictures"]
        kind, _, data = picture["uri"].partition(";base64,")
        assert kind == ("data:image/jpeg" if image_format == "jpeg" else "data:image/png")
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
        stored = dataset.sample(number).images[0]
        assert np.array_equal(shown, stored)


def test_pictures_shrink_to_the_budget(folder, monkeypatch):
    monkeypatch.setattr(show_samples, "_PICTURES_BYTES", 2)
    monkeypatch.setattr(show_samples, "_LEAST_PICTURE_BYTES", 1)
    ((picture,),) = [
        sample["pictures"] for sample in ask(folder, num=1, with_pictures=True)["samples"]
    ]
    assert picture["uri"].startswith("data:image/jpeg")
