"""The command line prints what is stored here, and stages make the same data.

`python -m tests.golden.regenerate` writes the stored outputs again. See the modules next to this
one for what each holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import broken_specs, dataset, plans, stored_runs, words
from tests.golden.command import REGENERATE, ROOT, fixed_surroundings, require_equal

same_python = pytest.mark.skipif(
    words.STORED_PYTHON.read_text().strip() != words.PYTHON,
    reason="argparse of another Python lays its texts out differently",
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder, in which the command has neither Slurm nor this machine's environment."""
    with fixed_surroundings(tmp_path):
        yield tmp_path


def test_check_says_the_same_of_every_broken_spec(folder: Path) -> None:
    stored = broken_specs.read_cases()
    assert len({case["name"] for case in stored}) == len(stored) > 300
    found = [
        broken_specs.checked(case, folder / f"{number:04d}") for number, case in enumerate(stored)
    ]
    changed = [
        f"{now['name']}:\n  stored: {_outputs(before)}\n  now:    {_outputs(now)}"
        for before, now in zip(stored, found, strict=True)
        if before != now
    ]
    if changed:
        pytest.fail(
            f"{len(changed)} of {len(stored)} broken specs are answered differently. If that is "
            f"meant, run `{REGENERATE} broken_specs` and read the diff.\n"
            + "\n".join(changed[:30]),
            pytrace=False,
        )


def _outputs(case: dict[str, object]) -> dict[str, object]:
    return {key: case.get(key) for key in ("exit_code", "stdout", "stderr")}


def test_plans_of_the_shipped_and_the_golden_specs_are_the_same(folder: Path) -> None:
    _require_all(dict(plans.outputs(folder / "plans")), plans.OUTPUTS)


@pytest.mark.parametrize("name", stored_runs.NAMES)
def test_status_and_report_of_a_stored_run_are_the_same(name: str, folder: Path) -> None:
    for file, text in stored_runs.outputs(name, folder / name).items():
        require_equal(text, stored_runs.OUTPUTS / file)


def test_comparisons_of_two_stored_runs_are_the_same(folder: Path) -> None:
    for file, text in stored_runs.outputs_of_two(folder / "two").items():
        require_equal(text, stored_runs.OUTPUTS / file)


@same_python
def test_the_help_of_every_verb_is_the_same(folder: Path) -> None:
    texts = dict(words.help_texts(words.verbs(folder), folder / "help"))
    _require_all({**texts, words.STORED_PYTHON.name: f"{words.PYTHON}\n"}, words.HELP)


@same_python
def test_wrong_command_lines_are_answered_in_the_same_way(folder: Path) -> None:
    require_equal(words.command_lines(folder / "lines"), words.COMMAND_LINES)


def test_stages_make_the_same_bytes_of_the_same_pictures(tmp_path: Path) -> None:
    stored = json.loads(dataset.CHECKSUMS.read_text(encoding="utf-8"))
    if stored["libraries"] != dataset.versions():
        pytest.skip(f"the checksums are of other versions: {stored['libraries']}")
    require_equal(dataset.checksums(tmp_path / "dataset"), dataset.CHECKSUMS)


@pytest.mark.slow
def test_a_resume_finishes_a_run_of_an_earlier_version(tmp_path: Path) -> None:
    run_dir = stored_runs.unpack("unfinished", tmp_path / "unfinished")
    before = json.loads(_slurm_jobs(run_dir, "resume", "--dry-run", "--json"))
    assert [(job["stage"], job["why"]) for job in before["jobs"]] == [
        ("train", "not complete"),
        ("report", "comes after train"),
    ]
    _slurm_jobs(run_dir, "resume")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        status = json.loads(_slurm_jobs(run_dir, "status", "--fresh", "--json"))
        if status["status"] not in {"running", "waiting"}:
            break
        time.sleep(0.5)
    assert status["status"] == "completed", status
    (record,) = (run_dir / "completions" / "train").glob("*.completed.json")
    result = json.loads(record.read_text(encoding="utf-8"))["result"]
    assert (result["resumed_from_step"], result["num_steps"]) == (40, 120)
    report = json.loads(_slurm_jobs(run_dir, "report", "--json"))
    assert report["header"]["status"] == "completed"


def _slurm_jobs(run_dir: Path, verb: str, *words: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "slurm_jobs", verb, str(run_dir), *words],
        cwd=run_dir.parents[1],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode in {0, 1}, f"{ended.stdout}{ended.stderr}"
    return ended.stdout


def _require_all(texts: dict[str, str], stored: Path) -> None:
    for name, text in texts.items():
        require_equal(text, stored / name)
    assert sorted(texts) == sorted(path.name for path in stored.iterdir())
