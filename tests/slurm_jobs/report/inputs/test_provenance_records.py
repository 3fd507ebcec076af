"""Records of provenance are read without secrets, and damaged ones are named."""

from __future__ import annotations

from slurm_jobs.base.redact import NOT_SHOWN
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.stage import build_and_write
from tests.slurm_jobs.report.builders import edited, notes_with, report_on
from tests.slurm_jobs.report.recorded_provenance import noted, run, write

__all__ = ["noted", "run"]


def test_notes_that_cannot_be_read_are_named_and_the_report_is_made(noted):
    noted.provenance(1).write_text("{")
    write(noted.python("py1"), {"version": "3"})
    write(noted.node_facts("train", 0, 1, 0), [])
    report = report_on(noted)
    assert len(notes_with(report, "not read as provenance")) == 3
    assert [n.stage for n in report.provenance.nodes] == ["preprocess", "preprocess", "train"]
    render_html(report)


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
