"""Folders that a `download` stage will provide, as other stages name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm_jobs.spec.conftest import Check

SPEC = """\
name: a
cluster: local
stages:
  get:
    run: download
    config: {{models: [Qwen/Qwen3-VL-2B], datasets: [{{repo: o/d, include: ["data/*"]}}]{more}}}
  p:
    run: preprocess
    after: get
    config:
      processor: ${{get.output_dir}}/{processor}
      manifest: ${{get.output_dir}}/{manifest}
"""


def spec(
    *, processor: str = "Qwen/Qwen3-VL-2B", manifest: str = "datasets/o/d/data", more: str = ""
) -> str:
    return SPEC.format(processor=processor, manifest=manifest, more=more)


def test_folders_of_repositories_and_below_have_no_problem(check: Check) -> None:
    assert check(spec()) == []
    assert check(spec(manifest="datasets/o/d")) == []


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        (
            {"processor": "Qwen/Qwen3-VL-2b"},
            "11:18: stages.p.config.processor: ",
            "downloads no `Qwen/Qwen3-VL-2b`; did you mean `Qwen/Qwen3-VL-2B`? (below its output",
        ),
        ({"manifest": "o/d"}, "12:17: stages.p.config.manifest: ", "downloads no `o/d`"),
        ({"processor": "Qwen/Qwen3-VL-2B-x"}, "11:18: ", "downloads no `Qwen/Qwen3-VL-2B-x`"),
    ],
)
def test_a_path_in_no_repository_is_refused_at_its_line(
    check: Check, changes: dict[str, str], place: str, message: str
) -> None:
    (line,) = check(spec(**changes))
    assert line.startswith(place)
    assert message in line


def test_a_mirror_must_have_each_repository(check: Check, tmp_path: Path) -> None:
    (tmp_path / "m/Qwen/Qwen3-VL-2B").mkdir(parents=True)
    (line,) = check(spec(more=", mirror: m"))
    assert "m has neither datasets/o/d/ nor datasets--o--d/; download the repository there" in line
    (tmp_path / "m/datasets--o--d").mkdir()
    assert check(spec(more=", mirror: m")) == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{}", "models and datasets are empty: name at least one repository of the hub"),
        ("{models: [https://hf.co/a/b]}", "models.0 is https://hf.co/a/b, which is no name on"),
        ("{models: [a/b, {repo: a/b, revision: v1}]}", "models.1 is a/b, which is named twice"),
        ("{models: [{repo: a/b, revsion: v1}]}", "unknown key `revsion`; did you mean `revision`?"),
        ("{datasets: a/b}", "expected a list, found the text `a/b`; write [a/b]"),
    ],
)
def test_a_config_that_names_no_repository_is_refused(
    check: Check, config: str, message: str
) -> None:
    text = f"name: a\ncluster: local\nstages:\n  get: {{run: download, config: {config}}}\n"
    (line,) = check(text)
    assert message in line
