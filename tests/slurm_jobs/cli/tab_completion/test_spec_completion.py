"""What a TAB offers of a spec or run: names of stages, and keys step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.typing_shells import offered, words_typed

SPEC = """\
name: shapes
stages:
  render: {run: "shapes:render", config: {colours: 3, size: {width: 4}}}
  train: {run: train, after: render, environment: {OMP_NUM_THREADS: "1"}}
"""
STAMPS = ("20261121-080611-5b9e", "20261122-080611-0a1b")


def make_run(folder: Path, name: str, **stages: Any) -> None:
    paths = RunPaths(folder / "runs" / name)
    paths.resolved_spec.parent.mkdir(parents=True)
    paths.run_json.touch()
    paths.resolved_spec.write_text(json.dumps({"stages": stages}))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    make_run(folder, f"old-{STAMPS[0]}", fetch={}, embed={"after": {"fetch": "afterok"}})
    make_run(folder, f"new-{STAMPS[1]}", words={})
    (folder / "shapes.yaml").write_text(SPEC)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SLURM_JOBS_RUNS_DIR", raising=False)
    return folder


@pytest.mark.parametrize(
    ("line", "stages"),
    [
        (f"logs old-{STAMPS[0]} ", ["fetch", "embed"]),
        (f"cancel runs/old-{STAMPS[0]} --stage ", ["fetch", "embed"]),
        ("cancel old --stage=e", ["--stage=embed"]),
        ("resume old --again f", ["fetch"]),
        ("compare old new --stage ", ["fetch", "embed"]),
        ("logs wo", ["words"]),
        ("resume --again ", ["words"]),
        ("tune shapes.yaml --stage ", ["render", "train"]),
        ("resume gone --again ", []),
        ("resume old --again embed:", []),
    ],
)
def test_stages_are_those_of_the_run_or_spec_on_the_line(
    here: Path, line: str, stages: list[str]
) -> None:
    assert offered(f"slurm-jobs {line}") == stages


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("na", ["name="]),
        ("st", ["stages.render.", "stages.train."]),
        ("stages.train.res", [".resources.nodes=", ".resources.mem_gb="]),
        ("stages.train.config.opt", [".config.optimizer.learning_rate="]),
        ("stages.train.config.evaluate.every", [".evaluate.every_steps="]),
        ("stages.train.env", ["stages.train.environment.OMP_NUM_THREADS="]),
        ("stages.render.env", ["stages.render.environment=", "stages.render.environment."]),
        ("stages.render.config.", [".config.colours=", ".config.size."]),
        ("stages.render.config.si", [".config.size.width="]),
        ("stages.train.config.strategy=", ["fsdp2", "ddp", "single", "accelerate"]),
        ("stages.train.config.tf32=t", ["true"]),
        ("stages.gone.conf", ["stages.gone.config=", "stages.gone.config."]),
    ],
)
def test_keys_of_a_spec_are_offered_step_by_step(here: Path, typed: str, keys: list[str]) -> None:
    answers = offered(f"slurm-jobs check shapes.yaml --set {typed}")
    for key in keys:
        assert any(answer.endswith(key) for answer in answers), answers


def test_a_step_offers_its_own_keys_alone(here: Path) -> None:
    assert offered("slurm-jobs plan shapes.yaml --set stages.train.config.optimizer.beta") == [
        "stages.train.config.optimizer.beta1=",
        "stages.train.config.optimizer.beta2=",
    ]


def test_a_resume_completes_the_keys_of_the_run_or_of_its_new_spec(here: Path) -> None:
    assert offered("slurm-jobs resume old --set st")[0] == "stages.fetch."
    line = "slurm-jobs resume old --spec shapes.yaml --set st"
    assert offered(line) == ["stages.render.", "stages.train."]


@pytest.mark.parametrize("text", ["stages: [", "- a", "stages: {a: 1, 'b c': {}, -x: {}}", ""])
def test_a_spec_with_errors_offers_what_can_be_read(here: Path, text: str) -> None:
    (here / "shapes.yaml").write_text(text)
    assert offered("slurm-jobs tune shapes.yaml --stage ") == (["a"] if "a: 1" in text else [])
    assert "name=" in offered("slurm-jobs check shapes.yaml --set ")


def test_names_of_a_forged_run_that_could_control_a_terminal_are_left_out(here: Path) -> None:
    make_run(here, f"forged-{STAMPS[0]}", **{"a\x1b]0;x\x07b": {}, "$(touch x)": {}, "fine": {}})
    assert offered("slurm-jobs logs forged ") == ["fine"]


def test_bash_completes_a_key_step_by_step_and_the_stage_of_a_run(here: Path) -> None:
    home = here.parent / "home"
    keys = "slurm-jobs check shap\t--set sta\ttr\tconfig.strat\tdd\t"
    words = ["check", "shapes.yaml", "--set", "stages.train.config.strategy=ddp"]
    assert words_typed("bash", keys, here, home) == words
    keys = "slurm-jobs logs old\tem\t--fai\t"
    words = ["logs", f"old-{STAMPS[0]}", "embed", "--failed"]
    assert words_typed("bash", keys, here, home) == words
