"""What a resume runs again, and what it says of it, on this machine, driven by the command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.driver import Driver

SPEC = """
name: again
cluster: local
stages:
  c: {run: "user_stages:work", array: {num_slices: 4}, config: {word: WORD}}
  a: {shell: "echo a", after: c}
  b: {shell: "echo b # \\L \\x7F"}
"""


def _complete(local: Driver) -> tuple[Driver, Path]:
    run_dir = local.submit_text(SPEC.replace("WORD", "one"))
    assert local.wait(run_dir)["status"] == "completed"
    return local, run_dir


@pytest.fixture
def done(local: Driver) -> tuple[Driver, Path]:
    """A run that is complete."""
    return _complete(local)


@pytest.fixture(scope="module")
def done_for_all(local_of_file: Driver) -> tuple[Driver, Path]:
    return _complete(local_of_file)


@pytest.fixture
def only_asked(done_for_all: tuple[Driver, Path]) -> Iterator[tuple[Driver, Path]]:
    """A run that is complete, and that no test changes; the user's files are put back."""
    local, _ = done_for_all
    kept = {name: (local.folder / name).read_text() for name in ("spec.yaml", "user_stages.py")}
    yield done_for_all
    for name, text in kept.items():
        local.write(name, text)


def _planned(local: Driver, run_dir: Path, *words: str) -> list[tuple[str, str, str]]:
    jobs = local.json("resume", str(run_dir), "--dry-run", *words)["jobs"]
    return [(job["stage"], job["slices"], job["why"]) for job in jobs]


def test_what_is_requested_runs_again_and_what_comes_after_it(done: tuple[Driver, Path]) -> None:
    local, run_dir = done
    assert _planned(local, run_dir) == []
    expected = [("c", "1,3", "asked for"), ("a", "0", "comes after c")]
    assert _planned(local, run_dir, "--again", "c:1,3") == expected
    local.run("resume", str(run_dir), "--again", "c:1,3")
    assert local.wait(run_dir)["status"] == "completed"
    begun = sorted(path.name for path in (run_dir / "attempts/c").iterdir())
    attempts = [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1), (3, 2)]
    assert begun == [f"s0000{index}.a000{number}.json" for index, number in attempts]
    assert [s["name"] for s in local.status(run_dir)["stages"]] == ["c", "a", "b"]


def test_what_cannot_run_again_is_an_input_error(only_asked: tuple[Driver, Path]) -> None:
    local, run_dir = only_asked
    wrong = dict.fromkeys(("c:4", "c:x", "c:0-9999999999", "c:9-5"), "slices 0 to 3")
    for words, message in {"d": "did you mean|stages: c, a, b", **wrong}.items():
        error = local.run("resume", str(run_dir), "--again", words, check=2).stderr
        assert re.search(message, error), words


def test_a_dry_run_with_other_resources_or_code_writes_nothing(
    only_asked: tuple[Driver, Path],
) -> None:
    local, run_dir = only_asked
    assert _planned(local, run_dir, "--set", "stages.b.resources.mem_gb=1") == []
    before = sorted((run_dir / "code").iterdir())
    local.write("user_stages.py", "def work(config, context):\n    return {}\n")
    planned = _planned(local, run_dir, "--update-code")
    assert [why for _, _, why in planned] == ["code changed: user_stages.py", "comes after c"]
    local.write("user_stages.py", "def work(config, context:\n    return {}\n")
    for options in (["--dry-run"], []):
        refused = local.run("resume", str(run_dir), "--update-code", *options, check=2)
        assert "user_stages.py is not valid Python" in refused.stderr
    (local.folder / "user_stages.py").unlink()
    refused = local.run("resume", str(run_dir), "--update-code", check=2)
    assert "the module `user_stages` of this run is no longer in" in refused.stderr
    assert sorted((run_dir / "code").iterdir()) == before


def test_a_resume_says_because_of_which_field_or_code_a_stage_runs_again(
    only_asked: tuple[Driver, Path],
) -> None:
    local, run_dir = only_asked
    word = _planned(local, run_dir, "--set", "stages.c.config.word=two")
    assert word == [("c", "0-3", "changed: config.word"), ("a", "0", "comes after c")]
    assert _planned(local, run_dir, "--set", "stages.c.resources.mem_gb=1") == []
    stages = local.folder / "user_stages.py"
    stages.write_text(stages.read_text() + "\n# another line\n")
    assert _planned(local, run_dir) == []
    code = _planned(local, run_dir, "--update-code")
    assert [(stage, why) for stage, _, why in code] == [
        ("c", "code changed: user_stages.py"),
        ("a", "comes after c"),
    ]


def test_update_spec_takes_the_current_file_and_the_next_resume_keeps_it(
    done: tuple[Driver, Path],
) -> None:
    local, run_dir = done
    text = SPEC.replace("WORD", "two").replace("  b:", "  d:")
    local.write("spec.yaml", text)
    assert _planned(local, run_dir) == []
    assert _planned(local, run_dir, "--update-spec") == [
        ("c", "0-3", "changed: config.word"),
        ("a", "0", "comes after c"),
        ("d", "0", "not complete"),
    ]
    local.run("resume", str(run_dir), "--update-spec")
    status = local.wait(run_dir)
    assert {s["name"]: s["status"] for s in status["stages"]} == dict.fromkeys("cad", "completed")
    assert _planned(local, run_dir) == []
    assert (run_dir / "spec/given.yaml").read_text() == text


def test_a_resume_takes_another_file_only_as_spec(
    only_asked: tuple[Driver, Path],
) -> None:
    local, run_dir = only_asked
    local.write("other.yaml", SPEC.replace("WORD", "two"))
    said = local.run("resume", str(run_dir), "--spec", "other.yaml", "--dry-run").stdout
    assert "changed: config.word" in said
    assert "spec.yaml. To use" in local.run("resume", "other.yaml", "--dry-run", check=2).stderr
    assert _planned(local, run_dir, "--update-spec") == []


def test_update_spec_refuses_another_name(only_asked: tuple[Driver, Path]) -> None:
    local, run_dir = only_asked
    local.write("spec.yaml", SPEC.replace("name: again", "name: other"))
    said = local.run("resume", str(run_dir), "--update-spec", check=2).stderr
    assert "a run keeps its `name` (again, now other)" in said


def test_a_stage_that_was_removed_from_the_spec_keeps_its_finished_work(
    done: tuple[Driver, Path],
) -> None:
    local, run_dir = done
    whole = (local.folder / "spec.yaml").read_text()
    without = "".join(line for line in whole.splitlines(keepends=True) if "  b:" not in line)
    local.write("spec.yaml", without)
    local.run("resume", str(run_dir), "--update-spec")
    assert [s["name"] for s in local.wait(run_dir)["stages"]] == ["c", "a"]
    local.write("spec.yaml", whole)
    assert local.json("resume", str(run_dir), "--update-spec")["jobs"] == []
    status = local.wait(run_dir)
    assert (status["status"], [s["name"] for s in status["stages"]]) == (
        "completed",
        ["c", "a", "b"],
    )


@pytest.mark.slow
def test_a_stage_that_comes_back_runs_again_where_what_it_comes_after_did(
    done: tuple[Driver, Path],
) -> None:
    local, run_dir = done
    whole = (local.folder / "spec.yaml").read_text()
    without = "".join(line for line in whole.splitlines(keepends=True) if "  a:" not in line)
    local.write("spec.yaml", without)
    local.run("resume", str(run_dir), "--update-spec", "--again", "c")
    assert local.wait(run_dir)["status"] == "completed"
    local.write("spec.yaml", whole)
    resumed = local.json("resume", str(run_dir), "--update-spec")
    assert [job["stage"] for job in resumed["jobs"]] == ["a"]
    assert local.wait(run_dir)["status"] == "completed"
