"""Content items of turns that are pictures."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_jobs.formats.manifests.messages import ManifestRow
from tests.slurm_jobs.formats.manifests.builders import ASKED, PICTURE, row_of


def _shown(item: dict[str, Any]) -> ManifestRow:
    question = {"role": "user", "content": [{"type": "image", **item}]}
    return row_of({"messages": [question, {"role": "assistant", "content": "A cat."}]})


@pytest.mark.parametrize("other", [{"image_url": {"url": "b.png"}}, {"image": {"path": "b.png"}}])
def test_an_item_with_two_pictures_is_refused(other: dict[str, Any]) -> None:
    assert "an image with several names" in _shown({"path": "a.png", **other}).problem


@pytest.mark.parametrize("other", [{"image_url": {"url": "a.png"}}, {"image": {"bytes": b"a"}}])
def test_an_item_may_name_its_picture_twice(other: dict[str, Any]) -> None:
    assert _shown({"path": "a.png", **other}).image_paths == ("a.png",)


@pytest.mark.parametrize(
    "media",
    [
        [{"type": "image", "path": "x.dcm"}],
        [{"type": "image_url", "image_url": {"url": "https://a/1"}}],
        {"type": "image", "id": 3},
    ],
)
@pytest.mark.parametrize("others", [{}, PICTURE])
def test_an_item_of_the_type_image_is_a_picture(media: Any, others: dict[str, Any]) -> None:
    row = row_of({**others, **ASKED, "media": media})
    assert "`media` names a picture, which is not read" in row.problem
