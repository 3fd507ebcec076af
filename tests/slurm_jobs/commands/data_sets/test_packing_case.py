"""Data set and training that `packing` is about, and where there is none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command, command
from tests.slurm_jobs.cli.data_sets.packed_runs import SPEC, here, made, source

__all__ = ["command", "here", "made", "source"]


@pytest.mark.slow
@pytest.mark.parametrize("words", [("RUN",), ()])
def test_packing_of_a_run_uses_the_submitted_spec(
    made: RunPaths, command: Command, words: Sequence[str]
) -> None:
    (Path.cwd() / "words.yaml").write_text(SPEC.replace("max_tokens: 256", "max_tokens: 128"))
    named = [str(made.run_dir) for _ in words]
    code, out, _ = command("packing", *named, "--no-timing", "--json")
    view = json.loads(out)
    assert (code, view["stage"], view["max_tokens"], view["num_ranks"]) == (0, "train", 256, 2)
    assert view["device"] is None


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_what_is_set_and_what_options_say_comes_first(command: Command) -> None:
    set_ranks = ("--set", "stages.train.resources.tasks_per_node=4")
    _, out, _ = command("packing", "words.yaml", *set_ranks, "--no-timing", "--json",
        "--max-tokens", 512, "--max-images", 3,
    )  # fmt: skip
    view = json.loads(out)
    assert (view["num_ranks"], view["max_tokens"], view["max_images"]) == (4, 512, 3)
    _, out, _ = command("packing", "words.yaml", "--ranks", 1, "--no-timing", "--json")
    assert json.loads(out)["num_ranks"] == 1


@pytest.mark.slow
def test_a_folder_has_no_model_and_eight_ranks(source: Path, command: Command) -> None:
    folder = source / "set" / "output"
    code, out, _ = command("packing", folder, "--max-tokens", 300, "--rows", 2, "--json")
    view = json.loads(out)
    assert (code, view["stage"], view["device"], view["num_ranks"]) == (0, None, None, 8)
    assert (view["max_tokens"], view["global_batch_size"]) == (300, 64)
    assert all(len(way["rows"]) == 2 for way in view["ways"])
    assert view["notes"] == [
        "no spec names a model: nothing is timed, and work is counted in tokens only"
    ]
    _, out, _ = command("packing", folder, "--ranks", 3, "--no-timing", "--json")
    assert (json.loads(out)["num_ranks"], json.loads(out)["notes"]) == (3, [])


@pytest.mark.slow
def test_config_dataset_needs_no_run(here: Path, source: Path, command: Command) -> None:
    spec = SPEC.replace("      device", f"      dataset: {source / 'set' / 'output'}\n      device")
    (here / "words.yaml").write_text(spec)
    code, out, _ = command("packing", "words.yaml", "--no-timing", "--json")
    assert (code, json.loads(out)["folder"]) == (0, str(source / "set" / "output"))


@pytest.mark.usefixtures("here")
def test_without_a_run_the_error_names_the_next_command(command: Command) -> None:
    code, _, err = command("packing", "words.yaml")
    assert code == 2
    assert "words.yaml: its data set is made by stage `pack`, and there is no run of it" in err
    assert " submit words.yaml, or name the folder of a data set instead" in err


def test_an_unfinished_data_set_is_refused_with_the_next_command(
    made: RunPaths, command: Command
) -> None:
    (made.output_dir("pack") / "dataset.json").unlink()
    code, _, err = command("packing", "words.yaml")
    assert code == 2
    assert "no finished data set yet (dataset.json is missing); see how far it is: " in err
    assert f" status {made.run_dir}\n" in err
    code, _, err = command("packing", made.output_dir("pack"))
    assert (code, " verify " in err) == (2, True)


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_ranks_that_do_not_divide_the_lanes_are_1(command: Command) -> None:
    code, _, err = command("packing", "words.yaml", "--ranks", 3, "--no-timing")
    assert code == 1
    assert "num_lanes is 8 and the number of ranks is 3" in err
