"""What the report says of a run's origin and nodes; secrets, and markup in values, it does not."""

from __future__ import annotations

import json

import pytest

from slurm_jobs.base.redact import NOT_SHOWN
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.page.sections.provenance_section import code_text
from slurm_jobs.report.stage import build_and_write
from slurm_jobs.report.values.report_model import report_to_json
from tests.slurm_jobs.report.builders import edited, notes_with, report_on

EVIL = "<script>alert(1)</script>"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_values(**changes):
    values = {
        "folder": "/home/ada",
        "commit": COMMIT,
        "branch": "main",
        "remotes": {"origin": "https://host.example/r.git"},
        "is_dirty": False,
        "num_changed": 0,
        "changed": [],
        "num_untracked": 0,
        "untracked": [],
        "diff_bytes": 0,
        "diff_is_cut": False,
        "problems": [],
    }
    return {**values, **changes}


def submission(number=1, **git_changes):
    return {
        "number": number,
        "recorded_unix_s": 1.7e9 + number,
        "slurm_jobs_version": "0.1.0",
        "command": ["/envs/bin/slurm-jobs", "submit" if number == 1 else "resume", EVIL],
        "overrides": [],
        "working_dir": "/home/ada",
        "git": git_values(**git_changes),
        "host": {"name": "login-1", "kernel": "Linux 5", "machine": "x86_64", "distribution": "D"},
        "python": {
            "executable": "/usr/bin/python3",
            "version": "3.11.7",
            "implementation": "CPython",
            "packages": {"slurm-jobs": "0.1.0", "submitit": "1.5.4", "zzz": "9"},
        },
        "slurm": {"version": "slurm 23.11.4", "problem": ""},
    }


def node(name, *, num_gpus=0, gpu="NVIDIA A100-SXM4-40GB", python="py1", **changes):
    values = {
        "node_name": name,
        "node_rank": 0,
        "noted_unix_s": 1.7e9,
        "host": {
            "name": name,
            "kernel": "Linux 5.14",
            "machine": "x86_64",
            "distribution": "Rocky",
        },
        "cpu": {"model": "AMD EPYC 7763", "num_cores": 128, "num_usable_cores": 8},
        "memory_bytes": 512 * 2**30,
        "gpus": [
            {
                "index": f"{i}",
                "name": gpu,
                "uuid": "u",
                "memory_bytes": 1,
                "driver_version": "570.1",
            }
            for i in range(num_gpus)
        ],
        "gpu_problem": "",
        "modules": ["cuda/12.4"],
        "variables": {"SLURM_JOB_ID": "12"},
        "python": python,
        "python_on_path": None,
    }
    return {**values, **changes}


PYTHON = {
    "executable": "/envs/train/bin/python",
    "version": "3.12.1",
    "implementation": "CPython",
    "packages": {"torch": "2.13.0+cu126", "transformers": "5.23.0", "wheel": "1"},
}


@pytest.fixture
def run(run_of):
    """A run of four preprocessing tasks and one training of two nodes; nothing noted yet."""
    return run_of(num_ranks=16, num_steps=3, stopped_at=None)[0]


def write(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


@pytest.fixture
def noted(run):
    """Two kinds of CPU nodes, and two GPU nodes that are alike but for a few pages of memory."""
    write(run.provenance(1), submission(is_dirty=True, num_changed=3, diff_bytes=2048))
    for index in range(4):
        attempt = 2 if index == 1 else 1
        model = {"model": "Intel" if index == 3 else "AMD EPYC 7763", "num_cores": 128}
        facts = node(f"cpu-0{index}", cpu=model)
        write(run.node_facts("preprocess", index, attempt, 0), facts)
    for rank in range(2):
        facts = node(f"gpu-0{rank}", num_gpus=8, memory_bytes=1024 * 2**30 - rank * 4096)
        write(run.node_facts("train", 0, 1, rank), facts)
    write(run.python("py1"), PYTHON)
    return run


def test_equal_nodes_are_listed_once_per_stage(noted):
    told = [(n.stage, n.node_names, n.cpu, n.gpus) for n in report_on(noted).provenance.nodes]
    gpus = (("NVIDIA A100-SXM4-40GB", 8),)
    assert told == [
        ("preprocess", ("cpu-00", "cpu-01", "cpu-02"), "AMD EPYC 7763", ()),
        ("preprocess", ("cpu-03",), "Intel", ()),
        ("train", ("gpu-00", "gpu-01"), "AMD EPYC 7763", gpus),
    ]


def test_page_and_json_show_code_nodes_driver_and_packages(noted):
    report = report_on(noted)
    page = render_html(report)
    for text in (
        "0123456789ab (main), 3 files changed and not committed",
        "the diff is in the run folder (2.00 KiB)",
        "https://host.example/r.git",
        "slurm (slurm 23.11.4)",
        "8 x NVIDIA A100-SXM4-40GB",
        "570.1",
        "torch 2.13.0+cu126, transformers 5.23.0",
        "3.12.1, /envs/train/bin/python",
        "slurm-jobs 0.1.0, submitit 1.5.4",
        "cuda/12.4",
    ):
        assert text in page, text
    values = json.loads(json.dumps(report_to_json(report)))["provenance"]
    assert values["submissions"][0]["commit"] == COMMIT
    assert values["submissions"][0]["is_dirty"] is True
    assert values["nodes"][-1]["drivers"] == ["570.1"]
    assert values["pythons"][0]["stages"] == ["preprocess", "train"]
    assert values["pythons"][0]["python"]["packages"]["torch"] == "2.13.0+cu126"


def test_values_of_nodes_and_command_are_escaped(noted):
    write(noted.node_facts("train", 0, 1, 0), node(EVIL, modules=[EVIL], gpu=EVIL, num_gpus=1))
    page = render_html(report_on(noted))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 4


def test_each_resume_has_its_row(noted):
    write(noted.provenance(2), submission(2, commit="f" * 40, branch=None))
    page = render_html(report_on(noted))
    assert "slurm-jobs submit" in page
    assert "slurm-jobs resume" in page
    assert f"{'f' * 12}, clean" in page


def test_a_run_of_an_older_version_says_that_nothing_was_noted(run):
    report = report_on(run)
    assert report.provenance.nodes == ()
    page = render_html(report)
    assert "recorded neither code nor packages" in page
    assert "No facts of nodes were noted." in page
    assert not notes_with(report, "provenance")


def test_notes_that_cannot_be_read_are_named_and_the_report_is_made(noted):
    noted.provenance(1).write_text("{")
    write(noted.python("py1"), {"version": "3"})
    write(noted.node_facts("train", 0, 1, 0), [])
    report = report_on(noted)
    assert len(notes_with(report, "not read as provenance")) == 3
    assert [n.stage for n in report.provenance.nodes] == ["preprocess", "preprocess", "train"]
    render_html(report)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "0123456789ab (main), clean"),
        ({"branch": None, "num_untracked": 2}, "0123456789ab, clean, 2 untracked"),
        ({"is_dirty": True, "num_changed": 1}, "0123456789ab (main), 1 file changed and not co"),
        ({"commit": None}, "no commit yet (main), clean"),
        ({"is_dirty": None, "problems": ["git: no answer in 5 s"]}, "not known whether anything"),
        (
            {"commit": None, "is_dirty": None, "problems": ["git: fatal: not a git repository"]},
            "not known to git (git: fatal: not a git repository)",
        ),
        ({"is_dirty": True, "num_changed": 1, "diff_bytes": 9, "diff_is_cut": True}, "(9 B, cut)"),
    ],
)
def test_the_version_of_the_code_is_shown_as_recorded_by_git(run, changes, text):
    write(run.provenance(1), submission(**changes))
    assert text in code_text(report_on(run).provenance.submissions[0])


def test_gpus_that_could_not_be_queried_are_not_shown_as_none(noted):
    facts = node("gpu-00", gpu_problem="nvidia-smi: no answer in 30 s")
    write(noted.node_facts("train", 0, 1, 0), facts)
    assert "n/a (nvidia-smi: no answer in 30 s)" in render_html(report_on(noted))


def test_secrets_of_the_spec_reach_neither_page_nor_json(run):
    with edited(run.resolved_spec) as spec:
        train = spec["stages"]["train"]
        spec["environment"] = {"HF_TOKEN": "s3cr3t-spec", "OMP_NUM_THREADS": "1"}
        train["environment"] = {"DB_PASSWORD": "s3cr3t-stage"}
        train["setup"] = ["export WANDB_API_KEY=s3cr3t-setup", "use s3cr3t-spec"]
        train["config"]["auth"] = {"user": "s3cr3t-config"}
        train["config"]["args"] = ["--token", "s3cr3t-item", "-u", "me:s3cr3t-user"]
        train["config"]["env"] = [{"name": "HF_TOKEN", "value": "s3cr3t-pair"}]
    write(run.spec_origin, {"profile": {"environment": {"MY_SECRET": "s3cr3t-profile"}}})
    reason = "rank 0: refused s3cr3t-stage and s3cr3t-profile, password=s3cr3t-other"
    for path in run.completions_dir("preprocess").glob("*.failed.json"):
        with edited(path) as record:
            record["reason"] = reason
    build_and_write(run)
    for path in (run.report_html, run.report_json):
        text = path.read_text()
        assert "s3cr3t" not in text
        assert NOT_SHOWN in text
        assert "OMP_NUM_THREADS" in text
        assert f"refused {NOT_SHOWN} and {NOT_SHOWN}, password={NOT_SHOWN}" in text


def test_a_stage_whose_name_resembles_a_secret_is_reported_as_any_other(run):
    after = {"after": {"consolidate": "afterok"}}
    with edited(run.resolved_spec) as spec:
        spec["stages"]["token-count"] = {**spec["stages"]["consolidate"], **after}
    told = report_on(run).spec["stages"]["token-count"]
    assert (told["run"], told["after"]) == ("consolidate", after["after"])
