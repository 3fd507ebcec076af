"""Data without pictures: judged over all slices together, and accepted where it is meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.build import run_consolidate, run_preprocess, write_image

TEXT = {"image_id": 7, "question": "What is it?", "answer": "A cat."}
SEEN = {"image": "a.png", **TEXT}
EARLY = {
    "conversations": [
        {"from": "gpt", "value": "Hello."},
        {"from": "human", "value": "What is it?"},
        {"from": "gpt", "value": "nan"},
    ]
}
KEYS = "has the keys `image_id`, `question`, `answer`"


@pytest.fixture
def config(tmp_path: Path, processor_dir: Path) -> dict[str, Any]:
    write_image(tmp_path / "a.png")
    return {"manifest": str(tmp_path / "m.jsonl"), "processor": str(processor_dir)}


def write(folder: Path, *rows: dict[str, Any]) -> None:
    (folder / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_slice_of_text_alone_is_kept_and_logged_with_place_and_keys(
    tmp_path: Path, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, TEXT, TEXT)
    (result,), parts = run_preprocess(tmp_path, config)
    assert (result["num_samples"], result["num_text_samples"]) == (2, 2)
    assert "m.jsonl: no sample of this slice has a picture that is read" in caplog.text
    assert f"The first, m.jsonl:1, {KEYS}" in caplog.text
    consolidated, _ = run_consolidate(tmp_path / "set", parts, text_only=True)
    assert consolidated["num_samples"] == 2


def test_text_alone_that_is_meant_is_accepted_and_counted(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    write(tmp_path, TEXT, TEXT)
    (result,), parts = run_preprocess(tmp_path, config | {"text_only": True})
    assert (result["num_samples"], result["num_text_samples"]) == (2, 2)
    consolidated, _ = run_consolidate(tmp_path / "set", parts)
    assert consolidated["num_samples"] == 2


@pytest.mark.parametrize("rows", [[TEXT, TEXT, SEEN], [SEEN, TEXT, TEXT], [TEXT, SEEN, TEXT]])
def test_a_slice_of_text_in_mixed_data_is_fine(
    tmp_path: Path, config: dict[str, Any], rows: list[dict[str, Any]]
) -> None:
    write(tmp_path, *rows)
    results, parts = run_preprocess(tmp_path, config, 3)
    assert sorted(result["num_text_samples"] for result in results) == [0, 1, 1]
    consolidated, _ = run_consolidate(tmp_path / "set", parts, 3)
    assert consolidated["num_samples"] == 3


@pytest.mark.parametrize("num_slices", [1, 3])
def test_slices_of_text_alone_fail_at_consolidation(
    tmp_path: Path, config: dict[str, Any], num_slices: int
) -> None:
    write(tmp_path, *[TEXT] * 4)
    _, parts = run_preprocess(tmp_path, config, num_slices)
    with pytest.raises(StageConfigError) as caught:
        run_consolidate(tmp_path / "set", parts, num_slices)
    message = str(caught.value)
    assert message.startswith("m.jsonl: none of the 4 samples has a picture that is read")
    assert f"The first, m.jsonl:1, {KEYS}" in message
    assert "keep all parts by `" in message
    assert "--set stages.consolidate.config.text_only=true`" in message
    consolidated, _ = run_consolidate(tmp_path / "set", parts, num_slices, text_only=True)
    assert consolidated["num_samples"] == 4


def test_consolidate_may_refuse_what_preprocess_accepts(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    write(tmp_path, TEXT)
    _, parts = run_preprocess(tmp_path, config | {"text_only": True})
    with pytest.raises(StageConfigError, match="have a picture that is read"):
        run_consolidate(tmp_path / "set", parts, text_only=False)


def test_samples_count_and_not_rows_whose_pictures_are_missing(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    write(tmp_path, {**SEEN, "image": "gone.png"}, TEXT)
    _, parts = run_preprocess(tmp_path, config | {"max_reject_share": 0.5})
    with pytest.raises(StageConfigError, match="the only sample does not have a picture"):
        run_consolidate(tmp_path / "set", parts)


def test_the_first_rows_of_a_limit_may_be_text(tmp_path: Path, config: dict[str, Any]) -> None:
    write(tmp_path, TEXT, TEXT, SEEN)
    (result,), _ = run_preprocess(tmp_path, config, limit=2)
    assert (result["num_samples"], result["num_text_samples"]) == (2, 2)


def test_parts_of_older_versions_are_read(tmp_path: Path, config: dict[str, Any]) -> None:
    write(tmp_path, TEXT)
    _, parts = run_preprocess(tmp_path, config | {"text_only": True})
    (index,) = (parts / "parts").glob("part-*[0-9].json")
    values = json.loads(index.read_text())
    assert (values.pop("text_only"), values.pop("first_text_row")["place"]) == (True, "m.jsonl:1")
    index.write_text(json.dumps(values))
    consolidated, _ = run_consolidate(tmp_path / "set", parts)
    assert consolidated["num_samples"] == 1


def test_notes_on_rows_are_counted_and_logged(
    tmp_path: Path, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    annotated = {"image": "a.png", "question": "What is it?", "answers": ["A cat.", "A dog."]}
    write(tmp_path, SEEN, EARLY, {**EARLY, "id": 3}, annotated)
    (result,), _ = run_preprocess(tmp_path, config)
    counts = {"answer_left_out": 2, "missing_value": 2, "several_answers": 1}
    assert result["row_notes"] == counts
    assert "m.jsonl: in 2 rows, the conversation begins with an answer" in caplog.text
