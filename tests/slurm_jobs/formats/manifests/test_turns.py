"""Content items of turns that are pictures."""

from __future__ import annotations

from typing import Any

import pytest

from tests.slurm_jobs.formats.manifests.builders import ASKED, PICTURE, row_of


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
