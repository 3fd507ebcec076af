"""The verb `packing`, with a real data set and a real process that looks at it and times it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.run_folder.paths import RunPaths
from tests.pipeline.build import preprocess_23, run_consolidate, write_processor
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.run.fabricate import make_run

SPEC = """\
name: words
cluster: local
stages:
  prep: {run: preprocess, config: {manifest: source/manifest.csv, processor: processor}}
  pack: {run: consolidate, after: prep}
  train:
    run: train
    after: pack
    resources: {tasks_per_node: 2}
    config:
      device: cpu
      num_steps: 1
      global_batch_size: 16
      batching: {kind: grouped, max_tokens: 256}
      model:
        vision: {hidden_size: 16, num_layers: 1, num_heads: 2, patch_size: 16}
        language: {hidden_size: 16, num_layers: 1, num_heads: 2, num_kv_heads: 1}
"""
SECOND = (
    SPEC.replace("name: words", "name: two")
    + "  more: {run: train, after: pack, config: \
{device: cpu, strategy: single, num_steps: 1}}\n"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest, a processor, and in `set/output` a data set of 23 samples."""
    folder = tmp_path_factory.mktemp("source")
    parts_dir = preprocess_23(folder, write_processor(folder / "processor"))
    run_consolidate(folder / "set", parts_dir, 2)
    (folder / "source" / "manifest.csv").write_text("image_path,text\na.png,words\n")
    return folder


@pytest.fixture
def here(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: specs, and no run yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("source", "processor"):
        (tmp_path / name).symlink_to(source / name)
    (tmp_path / "words.yaml").write_text(SPEC)
    (tmp_path / "two.yaml").write_text(SECOND)
    return tmp_path


@pytest.fixture
def made(here: Path, source: Path) -> RunPaths:
    """A run of the spec `words` whose data set is finished."""
    paths = make_run(
        here / "runs" / "words-20261121-080611-5b9e", {"prep": 1, "pack": 1, "train": 1}
    )
    plan = read_json(paths.plan(1))
    kinds = {"prep": "preprocess", "pack": "consolidate", "train": "train"}
    stages = [{**stage, "run": kinds[stage["name"]]} for stage in plan["stages"]]
    write_json_atomic(paths.plan(1), {**plan, "stages": stages})
    paths.resolved_spec.parent.mkdir()
    paths.resolved_spec.write_text(load(here / "words.yaml").spec.model_dump_json())
    write_json_atomic(paths.spec_origin, {"spec_file": str(here / "words.yaml")})
    shutil.copytree(source / "set" / "output", paths.output_dir("pack"))
    return paths


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
def test_ranks_that_do_not_divide_the_lanes_are_1(command: Command) -> None:
    code, _, err = command("packing", "words.yaml", "--ranks", 3, "--no-timing")
    assert code == 1
    assert "num_lanes is 8 and the number of ranks is 3" in err


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
