"""The verbs `verify` and `samples`, with real data sets and real processes that read them."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.cli.data_sets import verify
from slurm_jobs.cli.data_sets.verify import verdict_lines
from slurm_jobs.commands.data_sets.dataset_choice import DatasetPlace, VerifyResult
from slurm_jobs.run_folder.orders import order_to_json
from slurm_jobs.run_folder.paths import RunPaths
from tests.pipeline.build import preprocess_23, run_consolidate, write_processor
from tests.pipeline.tools.build import change_samples
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.run.fabricate import make_run, submit
from tests.slurm_jobs.worker.orders import order


@pytest.fixture(scope="module")
def dataset_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 23 samples in 4 shards, that three array tasks made."""
    folder = tmp_path_factory.mktemp("dataset")
    parts_dir = preprocess_23(folder, write_processor(folder / "processor"))
    for index in range(3):
        _, made = run_consolidate(folder / "set", parts_dir, 2, task=(index, 3), num_shards=4)
    return made


@pytest.fixture
def folder(dataset_dir: Path, tmp_path: Path) -> Path:
    """A copy of it, that lies in no run."""
    return Path(shutil.copytree(dataset_dir, tmp_path / "copy"))


@pytest.fixture
def paths(dataset_dir: Path, tmp_path: Path) -> RunPaths:
    """A run whose stages `c-a` and `c-b`, of one matrix, have each made it in three tasks."""
    made = make_run(
        tmp_path / "runs" / "r", {"p": 2, "c-a": 3, "c-b": 3}, origins={"c-a": "c", "c-b": "c"}
    )
    plan = read_json(made.plan(1))
    stages = [{**s, "run": "shell" if s["name"] == "p" else "consolidate"} for s in plan["stages"]]
    write_json_atomic(made.plan(1), {**plan, "stages": stages})
    for name in ("c-a", "c-b"):
        shutil.copytree(dataset_dir, made.output_dir(name))
        give_python(made, name, sys.executable)
    return made


def give_python(paths: RunPaths, stage: str, program: str) -> None:
    token = submit(paths, stage, 3, f"{stage}-{len(list(paths.ledger_dir.glob('*')))}")
    paths.job_dir(token).mkdir(parents=True)
    made = replace(order(paths.run_dir), token=token, stage=stage, python=program)
    write_json_atomic(paths.job_json(token), order_to_json(made))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)


def test_verify_of_a_valid_folder_exits_with_0_and_says_what_was_compared(
    folder: Path, command: Command
) -> None:
    code, out, err = command("verify", folder)
    assert (code, err) == (0, "")
    assert out.startswith(f"{folder}: 23 samples in 4 shards, ")
    assert out.endswith("no problems found\n")


def test_one_shard_is_no_shards(dataset_dir: Path) -> None:
    counts = {"num_samples": 1, "num_shards": 1, "num_bytes": 512}
    place = DatasetPlace(folder=dataset_dir)
    (line,) = verdict_lines(VerifyResult(place=place, problems=(), remedy="", counts=counts))
    assert line == f"{dataset_dir}: 1 sample in 1 shard, 512 bytes: no problems found"


def test_damaged_folder_is_1_and_names_file_sample_and_remedy(
    folder: Path, command: Command
) -> None:
    flip(folder / "shards" / "shard-000002.tar")
    code, out, _ = command("verify", folder)
    assert code == 1
    first, *problems, remedy = out.splitlines()
    assert first.endswith("2 problems found")
    assert "  shards/shard-000002.tar: sample 0000000" in problems[1]
    assert "copy these files again" in remedy


@pytest.mark.slow
def test_all_data_sets_of_a_run_are_verified_and_the_remedy_is_a_command(
    paths: RunPaths, command: Command
) -> None:
    flip(paths.output_dir("c-b") / "shards" / "shard-000003.tar")
    code, out, _ = command("verify", paths.run_dir)
    assert code == 1
    assert f"{paths.output_dir('c-a')}: 23 samples" in out
    assert f"resume {paths.run_dir} --again c-b:2\n      writes these" in out


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "names"), [("c-a", ["c-a"]), ("c", ["c-a", "c-b"])])
def test_stage_picks_data_sets(
    paths: RunPaths, command: Command, stage: str, names: list[str]
) -> None:
    code, out, _ = command("verify", paths.run_dir, "--stage", stage, "--json")
    values = json.loads(out)
    assert code == 0
    assert [value["stage"] for value in values["datasets"]] == names
    assert all(
        value["num_problems"] == 0 and value["remedy"] is None for value in values["datasets"]
    )


def test_folder_within_a_run_is_known_as_the_stages(paths: RunPaths, command: Command) -> None:
    (paths.output_dir("c-a") / "dataset.json").write_text("{")
    code, out, _ = command("verify", paths.output_dir("c-a"), "--json")
    (value,) = json.loads(out)["datasets"]
    assert (code, value["stage"], value["num_problems"]) == (1, "c-a", 1)
    assert value["remedy"].endswith("--again c-a")
    assert value["effect"].startswith("writes these files again")


@pytest.mark.slow
def test_what_only_the_user_can_remove_makes_nothing_run_again(
    paths: RunPaths, command: Command
) -> None:
    (paths.output_dir("c-a") / "shards" / "more").mkdir()
    code, out, _ = command("verify", paths.run_dir, "--stage", "c-a")
    assert code == 1
    assert "shards/more: a folder that is not part of this data set; remove it" in out
    assert out.splitlines()[-1].startswith("next: remove the files that do not belong")


@pytest.mark.slow
def test_data_set_that_is_not_finished_asks_for_a_resume_alone(
    paths: RunPaths, command: Command
) -> None:
    (paths.output_dir("c-a") / "dataset.json").unlink()
    code, out, _ = command("verify", paths.run_dir, "--stage", "c-a")
    assert code == 1
    assert "dataset.json: missing, so the data set is not finished" in out
    assert out.endswith(f"resume {paths.run_dir}\n      runs what is missing\n")


@pytest.mark.slow
def test_json_lists_every_problem_and_the_terminal_twenty_of_a_file(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(verify, "_MOST_OF_A_FILE", 3)
    (folder / "shards" / "shard-000001.tar").write_bytes(b"")
    _, out, _ = command("verify", folder, "--json")
    (value,) = json.loads(out)["datasets"]
    assert value["num_problems"] == len(value["problems"]) == 7
    assert [p["key"] is None for p in value["problems"]] == [True] + [False] * 6
    _, out, _ = command("verify", folder)
    assert "shard-000001.tar: 4 more problems; --json lists all" in out


@pytest.mark.slow
def test_the_python_of_the_stage_is_used_and_another_on_request(
    paths: RunPaths, command: Command
) -> None:
    give_python(paths, "c-a", "/nowhere/python")
    code, _, err = command("verify", paths.run_dir, "--stage", "c-a")
    assert code == 2
    assert "/nowhere/python: No such file or directory (the Python of stage `c-a`)" in err
    code, _, _ = command("verify", paths.run_dir, "--stage", "c-a", "--python", sys.executable)
    assert code == 0


def test_a_python_without_the_packages_is_refused_with_the_pip_command(
    folder: Path, tmp_path: Path, command: Command
) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    code, _, err = command("verify", folder, "--python", bare)
    assert code == 2
    assert f"{bare} (from --python) lacks a package: No module named 'numpy'" in err
    assert "-m pip install 'slurm-jobs[train]'" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("verify nowhere", "no run `nowhere`"),
        ("verify RUN --stage p", "--stage p: no data set of that name (there are: c-a, c-b)"),
        ("verify BARE", "no stage of it runs `consolidate`, so it has no data set"),
        ("samples nowhere", "no run `nowhere`"),
        ("samples COPY --key 99", "no sample of key 000000099; a key is the number of a row"),
        ("samples COPY --key x", "x is not a whole number"),
        ("samples RUN --key 1", "--html and --key are for one data set; choose one with --stage ("),
        ("samples RUN --html x.html", "--html and --key are for one data set"),
    ],
)
def test_wrong_words_are_2(
    paths: RunPaths, folder: Path, command: Command, words: str, message: str
) -> None:
    bare = make_run(folder.parent / "bare", {"a": 1}).run_dir
    named = {"RUN": paths.run_dir, "COPY": folder, "BARE": bare}
    code, _, err = command(*(named.get(word, word) for word in words.split()))
    assert code == 2
    assert message in err


def unlearn(folder: Path, *keys: int) -> None:
    def change(tokens: np.ndarray) -> np.ndarray:
        tokens[1] = -100
        return tokens

    change_samples(folder, dict.fromkeys(keys, change))


def test_samples_of_a_valid_folder_are_shown_with_the_learned_tokens(
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
    from slurm_jobs.cli.data_sets import samples as verb

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
def test_limit_is_reported(folder: Path, command: Command) -> None:
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


@pytest.mark.slow
def test_unfinished_data_set_is_1_and_says_so(folder: Path, command: Command) -> None:
    (folder / "dataset.json").unlink()
    code, _, err = command("samples", folder)
    assert code == 1
    assert "missing, so the data set is not finished; run consolidate" in err
