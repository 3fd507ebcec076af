"""Which rows are held out: by the bytes of their pictures alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.preprocess.held_out_choice import side_of_row
from pipeline.preprocess.manifest import read_manifest
from slurm_jobs.formats.manifests.messages import ManifestRow
from tests.pipeline.preprocess.slices import make_row

PICTURES = [f"picture {number}".encode() for number in range(2000)]


@pytest.fixture
def row(tmp_path: Path) -> ManifestRow:
    return make_row(tmp_path, "a.png")


@pytest.mark.parametrize("share", [0.02, 0.3, 0.98])
def test_held_out_pictures_are_about_the_share(row: ManifestRow, share: float) -> None:
    held_out = [data for data in PICTURES if side_of_row(row, [data], share) == "held_out"]
    deviation = (share * (1 - share) / len(PICTURES)) ** 0.5
    assert len(held_out) / len(PICTURES) == pytest.approx(share, abs=4 * deviation)
    # a larger share holds out these and more
    assert all(side_of_row(row, [data], (1 + share) / 2) == "held_out" for data in held_out)


def test_row_is_held_out_if_all_its_pictures_are_and_lost_if_some_are(row: ManifestRow) -> None:
    sides = {data: side_of_row(row, [data], 0.5) for data in PICTURES[:20]}
    held_out = [data for data, side in sides.items() if side == "held_out"]
    trained = [data for data, side in sides.items() if side == "trained"]
    assert side_of_row(row, held_out, 0.5) == "held_out"
    assert side_of_row(row, trained, 0.5) == "trained"
    assert side_of_row(row, [*trained, held_out[0]], 0.5) == "partly_held_out"


def test_row_without_a_picture_is_chosen_by_its_text(tmp_path: Path) -> None:
    manifest = tmp_path / "m.csv"
    lines = [f"How much is {number} + 1?,{number + 1}" for number in range(300)]
    manifest.write_text("\n".join(["question,answer", *lines, *lines]) + "\n")
    sides = [side_of_row(row, [], 0.2) for row in read_manifest(manifest)]
    assert sides[:300] == sides[300:]
    assert 30 < sides[:300].count("held_out") < 90
    other = read_manifest(manifest, system_prompt="Be brief.")  # of the config, not of the row
    assert [side_of_row(row, [], 0.2) for row in other] == sides
