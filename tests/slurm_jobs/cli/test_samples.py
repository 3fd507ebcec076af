"""The verb `samples`, with real data sets and a real process that reads them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.shared.files import read_json, write_json_atomic
from tests.pipeline.build import preprocess_23, run_consolidate, write_processor
from tests.pipeline.tools.build import change_samples
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.test_verify import give_python
from tests.slurm_jobs.run.fabricate import make_run


@pytest.fixture(scope="module")
def dataset_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 23 samples in 4 shards."""
    folder = tmp_path_factory.mktemp("dataset")
    parts_dir = preprocess_23(folder, write_processor(folder / "processor"))
    return run_consolidate(folder / "set", parts_dir, 2, num_shards=4)[1]


@pytest.fixture
def folder(dataset_dir: Path, tmp_path: Path) -> Path:
    """A copy of it, that lies in no run."""
    return Path(shutil.copytree(dataset_dir, tmp_path / "copy"))


@pytest.fixture
def paths(dataset_dir: Path, tmp_path: Path) -> RunPaths:
    """A run whose stages `c-a` and `c-b`, of one matrix, have each made it."""
    stages = {"c-a": 1, "c-b": 1}
    made = make_run(tmp_path / "runs" / "r", stages, origins=dict.fromkeys(stages, "c"))
    plan = read_json(made.plan(1))
    values = [{**stage, "run": "consolidate"} for stage in plan["stages"]]
    write_json_atomic(made.plan(1), {**plan, "stages": values})
    for name in stages:
        shutil.copytree(dataset_dir, made.output_dir(name))
        give_python(made, name, sys.executable)
    return made


def unlearn(folder: Path, *keys: int) -> None:
    def change(tokens: np.ndarray) -> np.ndarray:
        tokens[1] = -100
        return tokens

    change_samples(folder, dict.fromkeys(keys, change))


def test_sound_folder_is_0_and_shows_three_samples_with_what_is_learned(
    folder: Path, command: Command
) -> None:
    code, out, err = command("samples", folder)
    assert (code, err) == (0, "")
    first, tokens, images, marks, *rest = out.splitlines()
    assert first == f"{folder}: 23 samples in 4 shards"
    assert tokens.startswith("tokens a sample: median ")
    assert images == "images a sample: mean 1.00, max 1; stored at 32x32"
    assert marks == "supervised tokens are between [[[ and ]]]"
    assert sum(line.startswith("sample 0000000") for line in rest) == 3
    answers = [line for line in rest if line.startswith("  [[[")]
    assert len(answers) == 3
    assert all(line.rstrip("\\n").endswith("<|end|>]]]") for line in answers)
    assert rest[-1] == "audited 23 samples: no problems found"


def test_wrong_sample_is_1_and_named_with_the_command_that_shows_it(
    folder: Path, command: Command
) -> None:
    unlearn(folder, 5)
    code, out, _ = command("samples", folder, "--num", 0)
    assert code == 1
    *_, audited, finding, remedy = out.splitlines()
    assert audited == "audited 23 samples: 1 problem found"
    assert finding.endswith("sample 000000005: no token is supervised: nothing is learned from it")
    assert remedy.endswith(f"samples {folder} --key 000000005")
    code, out, _ = command("samples", folder, "--key", "000000005", "--key", 3)
    assert code == 1
    assert out.count("\nsample 00000000") == 2


@pytest.mark.slow
def test_shard_that_is_cut_short_is_1_and_names_verify(folder: Path, command: Command) -> None:
    shard = min((folder / "shards").glob("*.tar"))
    shard.write_bytes(shard.read_bytes()[:4096])
    code, out, _ = command("samples", folder, "--num", 0)
    assert code == 1
    assert out.splitlines()[-1].endswith(f"verify {folder}")


@pytest.mark.slow
def test_terminal_has_twenty_of_a_kind_and_json_all(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slurm_jobs.cli import data as verb

    monkeypatch.setattr(verb, "_MOST_OF_A_KIND", 3)
    unlearn(folder, *range(10))
    _, out, _ = command("samples", folder, "--num", 0)
    assert out.count("nothing is learned from it") == 3
    assert "  nothing_supervised: 7 more; --json lists them" in out
    code, out, _ = command("samples", folder, "--num", 1, "--json")
    (value,) = json.loads(out)["datasets"]
    assert code == 1
    assert value["num_findings"] == len(value["findings"]) == 10
    assert value["num_findings_by_kind"] == {"nothing_supervised": 10}
    assert value["statistics"]["num_samples"] == 23
    assert "pictures" not in value["samples"][0]
    assert len(value["samples"][0]["pieces"]) == len(value["samples"][0]["input_ids"])


@pytest.mark.slow
def test_html_is_one_file_with_the_pictures(folder: Path, tmp_path: Path, command: Command) -> None:
    page = tmp_path / "page.html"
    code, out, _ = command("samples", folder, "--html", page, "--num", 4, "--random", 3)
    assert code == 0
    assert out.endswith("page: " + str(page) + "\n")
    assert "\nsample " not in out
    assert page.read_text().count('<img src="data:image/png;base64,') == 4


@pytest.mark.slow
def test_limit_is_said(folder: Path, command: Command) -> None:
    _, out, _ = command("samples", folder, "--limit", 5)
    assert out.endswith("audited the first 5 of 23 samples: no problems found\n")


@pytest.mark.slow
def test_all_data_sets_of_a_run_are_shown_and_stage_picks(
    paths: RunPaths, command: Command
) -> None:
    unlearn(paths.output_dir("c-b"), 2)
    code, out, _ = command("samples", paths.run_dir, "--num", 0)
    assert code == 1
    assert out.count("23 samples in 4 shards") == 2
    assert f"samples {paths.run_dir} --key 000000002 --stage c-b\n" in out
    assert command("samples", paths.run_dir, "--num", 0, "--stage", "c-a")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("COPY", "--key", 99), "no sample of key 000000099; a key is the number of a row"),
        (("COPY", "--key", "x"), "x is not a whole number"),
        (("RUN", "--key", 1), "--html and --key are for one data set; pick one by --stage (there "),
        (("RUN", "--html", "x.html"), "--html and --key are for one data set"),
        (("nowhere",), "no run `nowhere`"),
    ],
)
def test_wrong_words_are_2(
    paths: RunPaths,
    folder: Path,
    command: Command,
    words: tuple[object, ...],
    message: str,
) -> None:
    named = {"RUN": paths.run_dir, "COPY": folder}
    code, _, err = command("samples", *(named.get(str(word), word) for word in words))
    assert code == 2
    assert message in err


@pytest.mark.slow
def test_unfinished_data_set_is_1_and_says_so(folder: Path, command: Command) -> None:
    (folder / "dataset.json").unlink()
    code, _, err = command("samples", folder)
    assert code == 1
    assert "missing, so the data set is not finished; run consolidate" in err
