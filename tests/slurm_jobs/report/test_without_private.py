"""A page to give away has no absolute path, user, account or login node of the run."""

from __future__ import annotations

import json
import os
import pwd
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.without_private import PrivateValues, without_private
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.protocol import Answer
from tests.slurm_jobs.cli.command import Command, command
from tests.slurm_jobs.report.builders import edited
from tests.slurm_jobs.report.fabricate_run import Scenario, fabricate
from tests.slurm_jobs.report.recorded_provenance import PYTHON, node, submission

__all__ = ["command"]

UID = 47_110_815
PRIVATE = (
    "zebulon",  # the user
    "artichoke",  # the account
    "wombat",  # the login node
    "gherkin",  # a project in the home folder
    "kumquat",  # a folder of data with a blank in its name
    "platypus",  # the folder of runs
    "marmalade",  # a Python environment
    "tangerine",  # a scratch folder
    "walrus",  # a remote of git
)
HOME = "/home/zebulon"
DATA = "/scratch/kumquat data/kumquat set"


def write(path: Path, values: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A run with private words wherever its records may have some."""
    monkeypatch.setattr("slurm_jobs.run.observe.accounting_of", lambda _run_dir: Answer())
    real, entry = pwd.getpwuid, ("zebulon", "x", UID, UID, "", HOME, "/bin/sh")
    monkeypatch.setattr(
        pwd, "getpwuid", lambda u: pwd.struct_passwd(entry) if u == UID else real(u)
    )
    monkeypatch.setattr(os, "getuid", lambda: UID)
    paths, _ = fabricate(tmp_path / "platypus" / "20231114-221320-shapes-4f1c", Scenario())
    with edited(paths.run_json) as meta:
        meta |= {"submitted_by": "zebulon", "uid": UID, "host": "login-wombat.example.org"}
        meta["spec_file"] = f"{HOME}/gherkin/shapes.yaml"
    with edited(paths.resolved_spec) as spec:
        spec["runs_dir"] = str(paths.run_dir.parent)
        spec["environment"] = {"DATA": f"{DATA}:{HOME}/more", "SBATCH_ACCOUNT": "artichoke"}
        preprocess, train = spec["stages"]["preprocess"], spec["stages"]["train"]
        preprocess["config"]["manifest"] = f"{DATA}/train.jsonl"
        train["config"]["title"] = "Zebulon's captions"
        train["config"]["mounts"] = {f"{DATA}/a": ["file:///tangerine/x", f"--out={HOME}/gherkin"]}
        train["setup"] = [f"source {HOME}/marmalade/bin/activate; cat '{DATA}/x' >/tangerine/y"]
        train["config"]["repo"] = "~zebulon/gherkins/zebulon_photos"
        train["resources"]["slurm"] = {"account": "artichoke", "mail-user": "z@wombat.example"}
        after = {"after": {"consolidate": "afterok"}}
        spec["stages"]["zebulon_stage"] = {**spec["stages"]["consolidate"], **after}
    origin = {"remotes": {"origin": "git@walrus.example:zebulon/captions.git"}}
    facts = submission(**origin, branch="zebulon/fix", problems=[f"git: {HOME}/gherkin is odd"])
    facts["host"]["name"] = "login-wombat"
    facts["command"] = [f"{HOME}/marmalade/bin/slurm-jobs", "submit", f"{HOME}/gherkin/shapes.yaml"]
    write(paths.provenance(1), facts)
    write(paths.python("py1"), {**PYTHON, "executable": f"{HOME}/marmalade/bin/python"})
    write(paths.node_facts("train", 0, 2, 0), node("gpu-01", num_gpus=8))
    for path in paths.completions_dir("preprocess").glob("*.failed.json"):
        with edited(path) as record:
            record["reason"] = f"rank 0: no such file: '{DATA}/a b.png' (zebulon, {HOME}/x), asked"
    paths.python("cut").write_text("{")  # the report names the file
    return paths


def private_words(text: str) -> list[str]:
    lowered = text.lower()
    return [word for word in PRIVATE if word in lowered]


def test_no_private_word_is_in_the_page_to_give_away(
    run: RunPaths, command: Command, tmp_path: Path
) -> None:
    shared = tmp_path / "page.html"
    out = command("report", run.run_dir, "--share", shared).result

    own = run.report_html.read_text()
    # "wombat" is in the own page as the host; all words are, or the test would show nothing
    assert private_words(own) == list(PRIVATE)
    page = shared.read_text()
    assert private_words(page) == []
    assert str(tmp_path) not in page
    assert (
        re.findall(r"(?<![\w/<>.&;])/(?!/)[a-z]\w+", re.sub(r"(?s)<style>.*?</style>", "", page))
        == []
    )
    assert "paths and names replaced" in out


def test_what_differed_differs_and_findings_can_be_followed(
    run: RunPaths, command: Command, tmp_path: Path
) -> None:
    shared = tmp_path / "page.html"
    _ = command("report", run.run_dir, "--share", shared).result
    page = shared.read_text()
    assert "&lt;spec&gt;/shapes.yaml" in page
    assert "&lt;run&gt;/pythons/cut.json" in page
    assert "slurm-jobs submit" in page
    assert "&lt;user&gt;_stage" in page
    assert "gpu-01" in page
    assert "&lt;path&gt;" in page
    assert "&lt;path 2&gt;" in page


def test_the_page_is_readable_by_all_whatever_the_umask(
    run: RunPaths, command: Command, tmp_path: Path
) -> None:
    shared = tmp_path / "page.html"
    shared.write_text("an older one")
    shared.chmod(0o600)
    before = os.umask(0o077)
    try:
        _ = command("report", run.run_dir, "--share", shared).result
    finally:
        os.umask(before)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o644
    assert stat.S_IMODE(run.report_html.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_names_stay_if_asked_for(run: RunPaths, command: Command, tmp_path: Path) -> None:
    shared = tmp_path / "page.html"
    _ = command("report", run.run_dir, "--share", shared, "--with-names").result
    assert shared.read_text() == run.report_html.read_text()


def test_a_spec_in_the_home_folder_does_not_open_that_folder(
    run: RunPaths, command: Command, tmp_path: Path
) -> None:
    with edited(run.run_json) as meta:
        meta["spec_file"] = f"{HOME}/shapes.yaml"
    shared = tmp_path / "page.html"
    _ = command("report", run.run_dir, "--share", shared).result
    assert private_words(shared.read_text()) == []


def test_a_closed_folder_is_named_because_others_cannot_open_the_page(
    run: RunPaths, command: Command, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    out = command("report", run.run_dir, "--share", closed / "page.html").result
    assert f"because {closed} does not let them in" in " ".join(out.split())


def test_a_file_that_cannot_be_written_is_refused_before_the_report(
    run: RunPaths, command: Command, tmp_path: Path
) -> None:
    assert "this is a folder" in command("report", run.run_dir, "--share", tmp_path, code=2).err
    assert "add --share" in command("report", run.run_dir, "--with-names", code=2).err


def test_any_word_of_the_page_can_be_a_user_without_breaking_it(report_of) -> None:
    report = report_of()
    words = set(re.findall(r"[a-z]\w{2,}", render_html(report)))
    for word in sorted(words):
        names = {"people": (word,), "accounts": (word,), "hosts": (word,)}
        private = PrivateValues(folders={}, homes=(), **names)
        assert "</html>" in render_html(without_private(report, private))


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("12.3 tokens/s, 3/4 done, and/or", "12.3 tokens/s, 3/4 done, and/or"),
        (
            "https://host.example/a/b and s3://bucket/c",
            "https://host.example/a/b and s3://bucket/c",
        ),
        ("./data, ../up, $HOME/x, data/**/y", "./data, ../up, $HOME/x, data/**/y"),
        ("read /data/a. Then /data/a, /data/b", "read <path>. Then <path>, <path 2>"),
        ("PATH=/a/b:/c/d 2>/dev/null <'/in put'", "PATH=<path>:<path 2> 2><path 3> <'<path 4>'"),
        ("/w/runs/r1/logs/a.log of /w/runs/r2", "<run>/logs/a.log of <runs>/r2"),
        ("/w/runs-old/x at /h/ada and /h/ada/x", "<path> at <home> and <path 2>"),
        ("ada, Ada's ada_data; adam", "<user>, <user>'s <user>_data; adam"),
        ("see ~/x or ~ada/x", "see <path> or <path 2>"),
        (r"cd /my\ data/x && ls", "cd <path> && ls"),
    ],
)
def test_paths_and_names_are_found_in_texts(report_of, text: str, replaced: str) -> None:
    private = PrivateValues(
        folders={"/w/runs/r1": "<run>", "/w/runs": "<runs>"},
        homes=("/h/ada",),
        people=("ada",),
        accounts=(),
        hosts=(),
    )
    report = report_of()
    report = replace(report, header=replace(report.header, spec_file=""), verdict=text)
    assert without_private(report, private).verdict == replaced
