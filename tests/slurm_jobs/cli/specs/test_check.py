"""What `check` says beside problems."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm_jobs.cli.command import Command

CONFIGS = sorted((Path(__file__).resolve().parents[4] / "configs").glob("*.yaml"))
SPEC = """
name: s
cluster: ours.yaml
environment: {TOKENIZERS_PARALLELISM: "false", WANDB_API_KEY: s3cr3t-1}
stages:
  a: {shell: "true", environment: {HF_TOKEN: s3cr3t-2, OMP_NUM_THREADS: "1"}}
  b: {shell: "true"}
"""


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """The command sets its own for good."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_specs_have_no_problems(path: Path, command: Command) -> None:
    assert "no problems found" in command("check", str(path)).result


def test_a_secret_in_a_spec_is_noted_with_what_to_do_instead(
    tmp_path: Path, command: Command
) -> None:
    (tmp_path / "ours.yaml").write_text("environment: {DB_PASSWORD: s3cr3t-3}\n")
    (tmp_path / "spec.yaml").write_text(SPEC)
    shown = command("check", str(tmp_path / "spec.yaml")).result
    notes = [line for line in shown.splitlines() if line.startswith("note: ")]
    assert [note.split("`")[1] for note in notes] == ["DB_PASSWORD", "WANDB_API_KEY", "HF_TOKEN"]
    for note, place in zip(notes, ("the cluster profile", "the spec", "stage `a`"), strict=True):
        assert f"of {place} looks like a secret" in note
        assert "written into the run folder" in note
        assert "`export` it before submit" in note
        assert "`setup:`" in note
    assert "s3cr3t" not in shown

    assert (
        len(json.loads(command("check", str(tmp_path / "spec.yaml"), "--json").result)["notes"])
        == 3
    )


def test_one_stage_of_one_task_is_counted_in_the_singular(tmp_path: Path, command: Command) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("name: s\ncluster: local\nstages: {a: {shell: 'true'}}\n")
    assert "no problems found (1 stage, 1 task: a)" in command("check", str(spec)).result
    assert (
        "no problems found (2 stages, 3 tasks: a b)"
        in command(
            "check", str(spec), "--set", "stages.b={shell: x, array: {num_slices: 2}}"
        ).result
    )


def test_a_spec_without_secrets_has_no_notes(tmp_path: Path, command: Command) -> None:
    (tmp_path / "spec.yaml").write_text("name: s\ncluster: local\nstages: {a: {shell: 'true'}}\n")
    assert json.loads(command("check", str(tmp_path / "spec.yaml"), "--json").result)["notes"] == []


def test_check_says_with_all_other_problems_that_no_run_can_be_made(
    tmp_path: Path, command: Command
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("name: s\ncluster: local\nruns_dir: spec.yaml/r\nstages: {a: {shel: 'true'}}\n")
    ended = command("check", str(spec))
    assert ended.code == 2
    shown = ended.err
    assert "runs_dir: no run can be made in" in shown
    assert "did you mean `shell`?" in shown


def test_a_module_of_another_python_is_noted_with_the_nearest_name(
    tmp_path: Path, command: Command
) -> None:
    (tmp_path / "wordcount.py").write_text("")
    spec = tmp_path / "spec.yaml"
    stage = '{run: "wordcuont:count", python: /usr/bin/python3}'
    spec.write_text(f"name: s\nstages: {{a: {stage}}}\n")
    (note,) = json.loads(command("check", str(spec), "--json").result)["notes"]
    assert "`wordcuont` is not next to the spec" in note
    assert note.endswith("did you mean `wordcount`?")


def test_a_setting_without_effect_is_noted_at_its_line(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "dataset.json").write_text("{}")
    config = "{device: cpu, strategy: single, num_steps: 1, dataset: set, memory_share: 0.8}"
    stages = f"stages:\n  t:\n    run: train\n    config: {config}\n"
    (tmp_path / "spec.yaml").write_text(f"name: s\ncluster: local\n{stages}")
    note = "spec.yaml:6:87: stages.t.config.memory_share: `0.8` has no effect: "
    assert f"\nnote: {note}" in command("check", "spec.yaml").result
    (told,) = json.loads(command("check", "spec.yaml", "--json").result)["notes"]
    assert told.startswith(note)
    assert (
        "note: "
        not in command(
            "check", "spec.yaml", "--set", "stages.t.config.num_microbatches=auto"
        ).result
    )
