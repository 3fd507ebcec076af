"""The runner of the GPU cases, and the cases on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.gpu import page, planted_suite, wheels
from tests.gpu.suite import CASES

ROOT = Path(__file__).parents[2]


def run(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.gpu", "--device", "cpu", "--out", str(out), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    out = tmp_path_factory.mktemp("planted")
    done = run(out, "--suite", "tests.gpu.planted_suite", "--lanes", "2")
    return done, json.loads((out / "results.json").read_text()), out


@pytest.mark.parametrize(
    ("name", "status", "reason", "figures"),
    [
        ("good", "passed", "", {"speed": 12.5}),
        ("wrong", "failed", "two is one: 2", {"after": "yes"}),
        ("slow", "slower than expected", "speed: 1, goal 2", {}),
        ("lacking", "not possible here", "the package no_such_package is missing",
         {"before": "yes"}),
        ("importing", "not possible here", "the package no_such_package is missing", {}),
        ("importing_ours", "failed",
         "ModuleNotFoundError: No module named 'pipeline.no_such_module'", {}),
        ("raising", "failed", "ValueError: nothing works", {}),
        ("dying", "failed", "its process ended with signal SIGKILL", {"reached": 1}),
        ("hanging", "failed", "still running after 12 s; see log.txt for where", {"reached": 1}),
        ("silent", "failed", "it wrote nothing", {}),
    ],
)  # fmt: skip
def test_each_case_is_reported_with_its_status_and_what_it_wrote(
    planted, name, status, reason, figures
):
    _, report, _ = planted
    (case,) = [case for case in report["cases"] if case["name"] == name]
    assert (case["status"], case["reason"], case["figures"]) == (status, reason, figures)


def test_cases_that_run_at_the_same_time_are_listed_in_their_order(planted):
    _, report, out = planted
    assert [case["name"] for case in report["cases"]] == [case.name for case in planted_suite.CASES]
    assert (out / "log.txt").read_text().count("\n== ") == len(planted_suite.CASES)


def test_the_run_fails_if_a_case_does_and_prints_how_many_ended_how(planted):
    done, _, out = planted
    assert done.returncode == 1
    assert "6 failed, 1 passed, 1 slower than expected, 2 not possible here in " in done.stdout
    log = (out / "log.txt").read_text()
    assert "planted_suite.py" in log.split("== hanging")[1].split("== ")[0]  # where it hung


def test_a_budget_that_is_used_up_leaves_cases_out_with_the_reason(tmp_path):
    done = run(tmp_path, "--suite", "tests.gpu.planted_suite", "--budget-s", "0")
    assert done.returncode == 0
    assert "10 not possible here" in done.stdout
    assert "not run: the 0 s of all cases were used up" in done.stdout


def test_patience_multiplies_the_limits_of_cases(tmp_path):
    words = ("--suite", "tests.gpu.planted_suite", "--only", "hanging", "--patience", "2")
    assert "still running after 1 s; " in run(tmp_path, *words).stdout


def test_an_unknown_case_is_refused_with_the_names(tmp_path):
    done = run(tmp_path, "--only", "nothing", "4 bits", "no bits")
    assert done.returncode == 1
    message, *names = done.stderr.splitlines()
    assert message == "--only: there is no case `no bits` or `nothing`. The cases are:"
    assert {"  facts", "  4 bits"} <= set(names)


def test_the_page_gets_the_table_in_the_place_of_the_last_one(planted, tmp_path):
    _, report, _ = planted
    text = tmp_path / "gpu.md"
    text.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    page.write(text, report)
    found = text.read_text()
    assert found.startswith("before\n")
    assert found.endswith("after\n")
    assert "old" not in found
    assert "| good | passed | " in found
    assert "without the other half: it is not here; speed 12.5 |" in found


def test_of_several_runs_the_last_result_of_each_case_is_shown(tmp_path):
    speeds = {
        "tokens_per_s": 44_905.6,
        "mfu": 0.3126,
        "idle_share": 0.0161,
        "padding_share": 0.0248,
        "peak_gb": 94.94,
        "device_forward_s": 0.2,
    }
    about = {"date": "2026-11-27", "gpu": "NVIDIA H200", "python": "3.12.3", "versions": {}}
    common = {"seconds": 1.0, "reason": "", "left_out": [], "figures": {}}
    first = {**about, "cases": [{"name": "a", "status": "failed", **common},
                                {"name": "b", "status": "passed", **common}]}  # fmt: skip
    last = {**about, "cases": [{"name": "a", "status": "passed", **common},
                               {"name": "speed: packed", "status": "passed", **common,
                                "figures": speeds}]}  # fmt: skip
    text = page.markdown(page.merged([first, last]))
    assert "| packed | 44,906 | 31.3% | 1.6% | 2.5% | 94.9 |" in text
    assert "| a | passed |" in text
    assert "| b | passed |" in text
    assert "failed" not in text
    assert "device forward" not in text


def test_missing_packages_are_unpacked_from_wheels(tmp_path, monkeypatch):
    monkeypatch.setattr(wheels, "PACKAGES", ("json", "carried_package"))
    for name in ("json", "carried_package"):
        with zipfile.ZipFile(tmp_path / f"{name}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}.py", "x = 1\n")
    assert wheels.unpack(tmp_path, tmp_path / "packages") == ["carried_package"]
    assert [path.name for path in (tmp_path / "packages").iterdir()] == ["carried_package.py"]


def test_a_case_of_the_suite_runs_on_a_cpu(tmp_path):
    done = run(tmp_path, "--short", "--only", "facts", "copies during kernels")
    assert done.returncode == 0, (tmp_path / "log.txt").read_text()[-2000:]
    assert "2 passed" in done.stdout


@pytest.mark.slow
def test_no_case_fails_on_a_cpu(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    report = json.loads((tmp_path / "results.json").read_text())
    assert [case["name"] for case in report["cases"]] == [case.name for case in CASES]
    assert all(case["reason"] for case in report["cases"] if case["status"] != "passed")
