"""The verb `samples`, with real data sets and real processes that read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.data_sets.made_datasets import dataset_dir, folder, paths, unlearn

__all__ = ["dataset_dir", "folder", "paths"]


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
