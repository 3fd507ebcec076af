from __future__ import annotations

import math

import pytest

from slurm_jobs.report.inputs import parents_first, read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.files import read_json, write_json_atomic
from slurm_jobs.shared.records import record_to_json
from tests.slurm_jobs.report.fabricate_steps import STEP_DTYPE


def test_stages_come_parents_first_whatever_the_order_in_the_file():
    stages = {
        "a_last": {"after": {"middle": "afterany", "first": "afterok"}},
        "middle": {"after": {"first": "afterok"}},
        "first": {"after": {}},
    }
    assert parents_first(stages) == ["first", "middle", "a_last"]


def test_a_broken_record_is_named_and_the_rest_is_read(fabrication, tmp_path):
    paths, _ = fabrication.fabricate(tmp_path / "run", fabrication.Scenario())
    paths.attempt("preprocess", 2, 1).write_text("{")
    steps = paths.timing_dir("train", 0, 2) / "rank-00001.steps"
    steps.write_bytes(b"no header\n")
    inputs = read_inputs(paths, ())
    assert len(inputs.problems) == 2
    assert "s00002.a0001.json" in inputs.problems[0]
    preprocess = inputs.stages[0]
    assert [a.slice_index for a in preprocess.attempts] == [0, 1, 1, 3]


def test_a_span_that_is_no_mapping_is_named_and_the_report_is_made(fabrication, tmp_path):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario())
    spans = paths.timing_dir("train", 0, 2) / "rank-00000.spans.jsonl"
    spans.write_text(spans.read_text() + "null\n")
    report = build_report(read_inputs(paths, rows), ReportConfig())
    assert "s00000.a0002, rank 0: 1 damaged line of spans left out" in report.notes
    assert "export" in {share.name for share in report.training[0].budget}


def test_step_records_that_a_crash_left_as_zeros_are_no_measurements(fabrication, tmp_path):
    scenario = fabrication.Scenario(stopped_at=None)
    paths, rows = fabrication.fabricate(tmp_path / "run", scenario)
    files = [paths.timing_dir("train", 0, 1) / f"rank-0000{rank}.steps" for rank in (0, 1)]
    for file in files:
        content = file.read_bytes()
        file.write_bytes(content[:-4096] + bytes(4096))
    report = build_report(read_inputs(paths, rows), ReportConfig())
    num_lost = math.ceil(4096 / STEP_DTYPE.itemsize)
    for rank in (0, 1):
        told = f"s00000.a0001, rank {rank}: {num_lost} step records left out, from the first"
        assert f"{told} damaged one on" in report.notes
    training = report.training[0]
    assert training.num_steps == 400 - num_lost
    assert 0.1 < training.last_loss.value < 0.4
    assert not any("clock" in note for note in report.notes)


def test_no_file_of_the_report_folder_stands_for_the_schedulers_accounting(fabrication, tmp_path):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario())
    paths.report_dir.mkdir()
    left = paths.report_dir / "accounting.json"
    write_json_atomic(left, [record_to_json(row) for row in rows])
    assert read_inputs(paths, ()).accounting == ()
    assert read_inputs(paths, rows[:1]).accounting == tuple(rows[:1])


def test_a_folder_that_is_no_run_is_refused(fabrication, tmp_path):
    paths, _ = fabrication.fabricate(tmp_path / "run", fabrication.Scenario())
    paths.run_json.unlink()
    with pytest.raises(FileNotFoundError, match=r"run\.json"):
        read_inputs(paths, ())


@pytest.mark.parametrize("result", [[1, 2], "done", 7, True])
def test_a_result_that_is_no_mapping_is_left_out_and_said(fabrication, tmp_path, result):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario())
    (record,) = paths.completions_dir("consolidate").iterdir()
    write_json_atomic(record, {**read_json(record), "result": result})
    report = build_report(read_inputs(paths, rows), ReportConfig())
    assert report.header.status == "completed"
    assert next(s for s in report.stages if s.name == "consolidate").results == {}
    assert any("its result is no mapping" in note for note in report.notes)


@pytest.mark.parametrize(
    "changed",
    [
        {"num_samples": math.nan},
        {"write_s": -1},
        {"decode_s": None},
        {"rejects_by_reason": -1},
        {"num_tokens_histogram": {"16": math.nan}},
        {"num_tokens_histogram": {"x": 3}},
        {"stored_image": {"num_measured": None, "bytes": 1.0, "decode_ms": 1.0, "psnr_db": None}},
        {"stored_image": {"num_measured": 3, "bytes": None, "decode_ms": 1.0, "psnr_db": None}},
    ],
)
def test_values_of_a_result_that_are_damaged_are_left_out_with_a_note(
    changed, fabrication, tmp_path
):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario(stopped_at=None))
    path = min(paths.completions_dir("preprocess").iterdir())
    record = read_json(path)
    write_json_atomic(path, {**record, "result": {**record["result"], **changed}})
    report = build_report(read_inputs(paths, rows), ReportConfig())
    assert any("its result has values that are damaged" in note for note in report.notes)


def test_a_record_with_a_value_of_another_type_is_a_note_and_the_report_is_made(
    fabrication, tmp_path
):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario(stopped_at=None))
    for folder, changed in (
        (paths.attempts_dir("train"), {"started_unix_s": "x"}),
        (paths.completions_dir("preprocess"), {"reason": None}),
    ):
        path = min(folder.iterdir())
        write_json_atomic(path, {**read_json(path), **changed})
    notes = build_report(read_inputs(paths, rows), ReportConfig()).notes
    assert any("not read as an attempt record: damaged: 'x'" in note for note in notes)
    assert any("not read as a completion record" in note for note in notes)
