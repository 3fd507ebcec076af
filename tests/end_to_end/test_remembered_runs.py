"""A spec keeps its runs on another file system, and its user works from several folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.end_to_end.driver import Driver

SPEC = """
name: {name}
cluster: local
runs_dir: $SCRATCH/{name}/runs
stages:
  greet: {{shell: "echo hello from {name}"}}
"""


def test_runs_elsewhere_are_found_from_any_folder(
    local: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRATCH", str(local.folder / "scratch"))
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.delenv("SLURM_JOBS_RUNS_DIR", raising=False)
    runs = {}
    for name in ("words", "pictures"):
        local.write(f"{name}/specs/{name}.yaml", SPEC.format(name=name))
        project = Driver(local.folder / name)
        runs[name] = project.submit(f"specs/{name}.yaml")
        project.wait(runs[name])
    moment = runs["words"].stat().st_mtime
    os.utime(runs["pictures"] / "run.json", (moment + 60, moment + 60))

    for folder in ("words", "words/specs"):
        here = Driver(local.folder / folder)
        for verb in ("status", "report", "resume"):
            done = here.run(verb)
            assert f"{runs['words']} is the newest run that was submitted" in done.stderr
        assert here.run("logs").stdout == "hello from words\n"
        assert here.json("cancel", "--yes")["run_dir"] == str(runs["words"])

    (local.folder / "elsewhere").mkdir()
    elsewhere = Driver(local.folder / "elsewhere")
    assert f"{runs['pictures']} is your newest run" in elsewhere.run("status").stderr
    listed = elsewhere.json("runs")["runs"]
    assert {Path(run["run_dir"]) for run in listed} == set(runs.values())
    assert elsewhere.json("status", "words")["run_id"] == runs["words"].name
