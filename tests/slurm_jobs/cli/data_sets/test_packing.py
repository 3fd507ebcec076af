"""The verb `packing`, with a real data set and a real process that looks at it and times it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.data_sets.packed_runs import SPEC, here, made, source

__all__ = ["here", "made", "source"]


def test_a_spec_is_drawn_and_timed_on_the_data_set_of_its_newest_run(
    made: RunPaths, command: Command
) -> None:
    code, out, err = command("packing", "words.yaml", "--image", "p.png")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out
    assert f"{made.output_dir('pack').relative_to(Path.cwd())}: 23 samples" in out
    assert "256 tokens; 16 samples a step on 2 ranks" in " ".join(out.split())
    assert "grouped *" in out
    assert "fastest here: " in out
    assert "exact: " in out
    assert "█" in out
    assert out.endswith("picture: p.png\n")
    with Image.open("p.png") as image:
        assert image.width == 1200


@pytest.mark.slow
def test_a_sample_longer_than_a_row_is_reported_with_the_remedy(
    source: Path, command: Command
) -> None:
    code, out, _ = command("packing", source / "set" / "output", "--max-tokens", 20)
    assert code == 0
    told = " ".join(out.split())
    assert "samples have more than max_tokens = 20 tokens" in told
    assert told.count("to use longer rows: --max-tokens ") == 1  # not once a strategy


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_a_spec_whose_own_rows_are_too_short_is_1(command: Command) -> None:
    batching = "stages.train.config.batching"
    changes = ("--set", f"{batching}.kind=packed", "--set", f"{batching}.max_tokens=20")
    code, out, _ = command("packing", "words.yaml", "--no-timing", "--json", *changes)
    (own,) = (way for way in json.loads(out)["ways"] if way["is_configured"])
    assert (code, own["name"]) == (1, "exact")
    assert "samples have more than max_tokens = 20 tokens" in own["problem"]


@pytest.mark.slow
@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    "change",
    [
        "{kind: packed, strategy: none, max_tokens: 20}",
        pytest.param("kind=auto", marks=pytest.mark.slow),
    ],
)
def test_a_way_that_is_not_shown_by_itself_is_refused_with_1_too(
    command: Command, change: str
) -> None:
    batching = "stages.train.config.batching"
    changes = ("--set", f"{batching}={change}" if "{" in change else f"{batching}.{change}")
    code, out, _ = command("packing", "words.yaml", "--no-timing", *changes, "--max-tokens", 20)
    assert code == 1
    assert "a training with the spec's batching would be refused" in " ".join(out.split())


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("two.yaml",), "two.yaml: name one of its stages by --stage: train, more"),
        (("words.yaml", "--stage", "prep"), "--stage prep: no stage of that name runs `train` or"),
        (("nowhere",), "no run `nowhere`"),
        (("words.yaml", "--image", "p.jpg"), "p.jpg: pictures are PNG; name a file that ends in"),
        (("--set", "name=a"), "--set is for a spec's file"),
        (("words.yaml", "--image", "gone/p.png"), "--image gone/p.png: there is no folder"),
        (("FOLDER", "--stage", "train"), "is the folder of a data set: --stage and --set are for"),
        (("words.yaml", "--rows", "0"), "0 is not a whole number above 0"),
    ],
)
def test_wrong_words_are_2_with_the_remedy(
    source: Path, command: Command, words: Sequence[str], message: str
) -> None:
    named = {"FOLDER": str(source / "set" / "output")}
    code, _, err = command("packing", *(named.get(word, word) for word in words))
    assert code == 2
    assert message in err


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_the_python_of_the_spec_is_used(here: Path, command: Command) -> None:
    mine = here / "python"
    mine.write_text("#!/bin/sh\necho this one >&2\nexit 3\n")
    mine.chmod(0o755)
    spec = SPEC.replace("    resources", f"    python: {mine}\n    resources")
    (here / "words.yaml").write_text(spec)
    code, _, err = command("packing", "words.yaml", "--no-timing")
    assert code == 3
    assert f"{mine} (the Python of stage `train`) ended without an answer (exit code 3)" in err
    code, _, _ = command("packing", "words.yaml", "--no-timing", "--python", sys.executable)
    assert code == 0
