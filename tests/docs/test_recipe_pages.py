"""The pages of measured recipes: their figures are of the command that they show."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from docs.tools.recipe_pages import fill_page, middle, read_speed, shown_command, table
from pipeline.timing.recorder import StepCounts, StepOutcome, StepRecorder

ROOT = Path(__file__).parents[2]
RECIPES = sorted(path.stem for path in (ROOT / "docs/tools/recipes_run").glob("*.py"))


@pytest.mark.parametrize("name", RECIPES)
def test_a_page_shows_the_command_that_its_figures_come_from(name: str) -> None:
    page = (ROOT / "docs" / "recipes" / f"{name}.md").read_text()
    small = importlib.import_module(f"docs.tools.recipes_run.{name}").SMALL
    assert shown_command(f"configs/{name}.yaml", small) in page


@pytest.mark.parametrize("name", RECIPES)
def test_no_place_of_a_page_is_left_empty(name: str) -> None:
    page = (ROOT / "docs" / "recipes" / f"{name}.md").read_text()
    places = re.findall(r"<!-- ([\w-]+): begin -->\n(.*?)\n?<!-- \1: end -->", page, re.DOTALL)
    assert {"command", "machine"} < {place for place, _ in places}
    assert [place for place, body in places if not body.strip()] == []


def test_a_place_that_the_page_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="no <!-- nowhere: begin -->"):
        fill_page(RECIPES[0], {}, {"nowhere": ""})


def test_speeds_are_of_all_ranks_together(tmp_path: Path) -> None:
    folder = tmp_path / "timing" / "train" / "s00000.a0001"
    folder.mkdir(parents=True)
    counts = StepCounts(
        epoch=0, num_microbatches=1, num_samples=4, num_tokens=30, num_padding_tokens=10,
        num_supervised_tokens=5, num_images=4, num_image_tokens=16,
    )  # fmt: skip
    for rank in (0, 1):
        with StepRecorder(folder, rank, {}) as recorder:
            for step in range(8):
                recorder.start_step(step)
                recorder.lap("data_wait_s")
                recorder.lap("forward_s")
                recorder.end_step(counts, StepOutcome(loss=1.0, learning_rate=0.1))
    speed = read_speed(tmp_path, "train")
    assert (speed.num_steps, speed.num_samples, speed.num_tokens) == (8, 64, 480)
    assert speed.padding_share == 0.25
    assert speed.tokens_per_s == pytest.approx(speed.samples_per_s * 30 / 4)
    assert speed.slots_per_s == pytest.approx(speed.tokens_per_s * 4 / 3)
    assert 0 <= speed.data_wait_share <= 1


def test_several_runs_are_shown_as_median_and_range() -> None:
    assert middle([3.0, 1.0, 2.0], ".1f") == "2.0 (1.0 to 3.0)"
    assert middle([3.0], ".1f") == "3.0"
    assert table(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
