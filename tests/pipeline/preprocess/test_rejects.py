"""How many rows may be lost, and which of them count."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.preprocess.rejects import RejectLimit
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.build import run_preprocess, write_csv_manifest, write_image


def csv_config(tmp_path: Path, processor_dir: Path) -> dict[str, Any]:
    manifest = write_csv_manifest(tmp_path / "source", 10)
    return {"manifest": str(manifest), "processor": str(processor_dir), "num_threads": 2}


@pytest.mark.parametrize(
    ("share", "num_rows", "num_allowed"),
    [(0.0, 9, 0), (0.01, 1, 1), (0.01, 100, 1), (0.01, 101, 2), (0.07, 100, 7), (1e-5, 7, 1)],
)
def test_share_is_rounded_up_to_whole_rows(share: float, num_rows: int, num_allowed: int) -> None:
    assert RejectLimit(max_reject_share=share, num_rows=num_rows).num_allowed == num_allowed


def test_rows_to_fix_come_with_the_command_that_makes_all_parts_again() -> None:
    limit = RejectLimit(max_reject_share=1.0, num_rows=6)
    fixed = "slurm-jobs resume runs/a --again prep"
    message = limit.nothing_left({"bad_row": 6}, {}, fixed=fixed, run="runs/a", stage="prep")
    assert message.endswith(". Fix these rows, then `slurm-jobs resume runs/a --again prep`")


def test_share_that_leaves_no_sample_is_to_be_made_smaller() -> None:
    limit = RejectLimit(max_reject_share=0.0, num_rows=3)
    counts = {"held_out": 2, "partly_held_out": 1}
    assert limit.problem(counts) is None
    message = limit.nothing_left(counts, {}, fixed="", run="runs/a", stage="prep")
    setting = "stages.prep.config.held_out.share=NUMBER"
    assert message.endswith(f"by `slurm-jobs resume runs/a --set {setting}`")


@pytest.mark.parametrize("num_slices", [1, 2])
def test_a_manifest_without_any_usable_row_fails_and_names_the_first(
    tmp_path: Path, processor_dir: Path, num_slices: int
) -> None:
    config = csv_config(tmp_path, processor_dir)
    manifest = Path(config["manifest"])
    head, *rows = manifest.read_text().splitlines()
    row = rows[0].replace(".png", "-gone.png").replace(".jpg", "-gone.jpg")
    manifest.write_text("\n".join([head, *[row] * num_slices]) + "\n")
    if num_slices == 2:  # each slice has lost one row, which its share allows; `consolidate` judges
        results, _ = run_preprocess(tmp_path, config, num_slices=2)
        assert [result["num_samples"] for result in results] == [0, 0]
        return
    words = (
        r"the only row did not become a sample \(missing_image 1\)\. The first is .*no such file\. "
        r"Fix these rows, then `slurm-jobs resume \S+`\. Images are expected in .*; if that is "
        r"the wrong folder: `slurm-jobs resume .* --set stages\.\S+\.config\.image_root=FOLDER`"
    )
    with pytest.raises(StageConfigError, match=words):
        run_preprocess(tmp_path, config)


def test_another_image_root_is_not_advised_for_a_missing_absolute_path(
    tmp_path: Path, processor_dir: Path
) -> None:
    config = {**csv_config(tmp_path, processor_dir), "images_within": "/"}
    Path(config["manifest"]).write_text("image_path,text\n/gone/a.png,a\n")
    with pytest.raises(StageConfigError) as caught:
        run_preprocess(tmp_path, config)
    assert "/gone/a.png: no such file; the path is absolute; correct it, or" in str(caught.value)
    assert "Images are expected in" not in str(caught.value)


def test_dropped_long_samples_do_not_count_as_broken(tmp_path: Path, processor_dir: Path) -> None:
    config = {**csv_config(tmp_path, processor_dir), "max_tokens": 53, "max_reject_share": 0.0}
    (result,), _ = run_preprocess(tmp_path, config | {"max_too_long_share": 0.3})
    assert 0 < result["num_too_long"] < 10
    assert result["num_samples"] == 10 - result["num_too_long"]


def test_too_many_long_samples_fail_the_slice_with_lengths_and_keys(
    tmp_path: Path, processor_dir: Path
) -> None:
    config = {**csv_config(tmp_path, processor_dir), "max_tokens": 53}
    words = (
        r"train\.csv: 3 of 10 rows are too long \(too_long 3\); max_too_long_share: 0\.05 "
        r"allows 1\. max_tokens is 53; the rows over max_tokens have 54 tokens in the median, 54 "
        r"at most\. Keep these rows by max_tokens=54 \(longer samples\), or leave them out by "
        r"max_too_long_share=0\.3"
    )
    with pytest.raises(StageConfigError, match=words):
        run_preprocess(tmp_path, config)
    lines = (tmp_path / "output" / "parts" / "part-00000.rejects.jsonl").read_text().splitlines()
    assert [json.loads(line)["num_tokens"] for line in lines] == [54, 54, 54]
    (result,), _ = run_preprocess(tmp_path, config | {"max_tokens": 54})
    assert result["num_samples"] == 10


def test_rows_of_too_many_images_are_too_long_as_well(tmp_path: Path, processor_dir: Path) -> None:
    config = {**csv_config(tmp_path, processor_dir), "max_images": 0}
    words = r"10 of 10 rows .*too_many_images 10.* max_images is 0\. Keep .* max_images=NUMBER, or"
    with pytest.raises(StageConfigError, match=words):
        run_preprocess(tmp_path, config)
    words = r"none of 10 rows became a sample \(too_many_images 10\); max_images: 0 leaves out"
    with pytest.raises(StageConfigError, match=words):
        run_preprocess(tmp_path, config | {"max_too_long_share": 1.0})


def test_what_fails_a_slice_is_shown_and_not_what_was_left_out_before_it(
    tmp_path: Path, processor_dir: Path
) -> None:
    answer = {"role": "assistant", "content": "yes"}
    rows = [
        {"messages": [{"role": "user", "content": "q" * 200}, answer]},
        {"messages": [{"role": "user", "content": "ok?"}, answer], "images": ["gone.png"]},
    ]
    manifest = tmp_path / "rows.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {"manifest": str(manifest), "processor": str(processor_dir), "max_tokens": 100}
    looked_for = re.escape(f"Images are expected in {tmp_path} (image_root)")
    with pytest.raises(
        StageConfigError, match=rf"The first is rows.jsonl:2: gone\.png.* {looked_for}"
    ):
        run_preprocess(tmp_path, config | {"max_reject_share": 0.0})


@pytest.mark.parametrize("too_long", ["drop", "truncate_text"])
def test_sample_of_which_a_cut_leaves_nothing_does_not_count_as_broken(
    tmp_path: Path, processor_dir: Path, too_long: str
) -> None:
    manifest = tmp_path / "rows.jsonl"
    rows = [
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": "yes"}]}
        for q in ("ok?", "q" * 200)
    ]
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {"manifest": str(manifest), "processor": str(processor_dir), "too_long": too_long}
    config |= {"text_only": True}
    (result,), _ = run_preprocess(tmp_path, config | {"max_tokens": 100, "max_reject_share": 0.0})
    assert (result["num_samples"], result["num_too_long"], result["num_truncated"]) == (1, 1, 0)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [({"max_images": 1}, "too_many_images"), ({"max_tokens": 60}, "images_too_long")],
)
@pytest.mark.parametrize("too_long", ["drop", "truncate_text"])
def test_sample_over_a_limit_of_images_is_counted_and_not_broken(
    tmp_path: Path, processor_dir: Path, limit: dict[str, int], reason: str, too_long: str
) -> None:
    write_image(tmp_path / "a.png")
    answer = {"role": "assistant", "content": "yes"}
    rows = [
        {"messages": [{"role": "user", "content": "ok?"}, answer], "images": ["a.png"] * count}
        for count in (1, 20)
    ]
    manifest = tmp_path / "rows.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {"manifest": str(manifest), "processor": str(processor_dir), "too_long": too_long}
    config |= {"max_images": 20, "max_reject_share": 0.0, **limit}
    (result,), _ = run_preprocess(tmp_path, config)
    assert result["rejects_by_reason"] == {reason: 1}
    assert (result["num_samples"], result["num_too_long"]) == (1, 1)
    with pytest.raises(StageConfigError, match=r"rows\.jsonl:2: .*raise config\.max_"):
        run_preprocess(tmp_path / "strict", config | {"too_long": "error"})
