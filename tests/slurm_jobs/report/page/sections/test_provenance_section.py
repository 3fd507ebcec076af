"""Code, nodes, packages and probes of a run on its page."""

from __future__ import annotations

import json

import pytest

from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.page.sections.provenance_section import code_text
from slurm_jobs.report.values.report_model import report_to_json
from tests.slurm_jobs.report.builders import notes_with, report_on
from tests.slurm_jobs.report.probed_nodes import alike, probed, read
from tests.slurm_jobs.report.recorded_provenance import (
    COMMIT,
    EVIL,
    node,
    noted,
    run,
    submission,
    write,
)

__all__ = ["noted", "probed", "read", "run"]


def test_page_and_json_show_the_numbers_of_the_runs_nodes_alone(probed):
    report = probed(*alike("gpu-01", "gpu-02", "x1"))
    page = render_html(report)
    section = page.partition('id="provenance"')[2]
    assert "Probes of its nodes" in section
    assert "250 TFLOP/s bf16, 18.0 TFLOP/s fp32" in section
    assert "x1" not in section.partition("Software")[0].partition("Probes of its nodes")[2]
    values = json.loads(json.dumps(report_to_json(report)))
    nodes = [entry["node"] for entry in values["provenance"]["probes"]]
    assert nodes == ["gpu-01", "gpu-02"]
    assert values["provenance"]["probes"][0]["numbers"]["local_read_bytes_per_s"] == 2e9


def test_without_a_probe_the_page_has_no_such_table(probed):
    assert "Probes of its nodes" not in render_html(probed())


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
