"""The stage `preprocess`, run for real."""

from __future__ import annotations

import json
import tarfile
import time
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from pipeline import stopping
from pipeline.preprocess.part import PartPaths, read_part_index
from pipeline.preprocess.stage import run, token_histogram
from slurm_jobs.base.errors import StageConfigError, StageStoppedError
from slurm_jobs.formats.configs.stages import ImageFormat, PreprocessConfig
from tests.pipeline.build import make_context, run_preprocess
from tests.pipeline.preprocess.slices import Config, make_config, rejects_of


@pytest.fixture
def _stop_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "stop_requested", lambda: True)


def samples_of(folder: Path, slice_index: int = 0) -> np.ndarray:
    return np.load(PartPaths(output_dir=folder, slice_index=slice_index).samples)


def keys_and_hashes(folder: Path, num_slices: int) -> list[tuple[int, int]]:
    parts = [samples_of(folder, index) for index in range(num_slices)]
    return [(int(row["key"]), int(row["xxh3"])) for part in parts for row in part]


def break_rows(config: Config, *rows: int) -> None:
    manifest = Path(config["manifest"])
    lines = manifest.read_text().splitlines()
    for row in rows:
        lines[row + 1] = "gone.png,words"
    manifest.write_text("\n".join(lines) + "\n")


def test_slice_that_runs_twice_writes_the_same_bytes(tmp_path: Path, config: Config) -> None:
    trees = []
    for name, num_threads in (("a", 1), ("b", 3)):
        _, folder = run_preprocess(tmp_path / name, {**config, "num_threads": num_threads}, 2)
        trees.append({p.name: p.read_bytes() for p in (folder / "parts").iterdir()})
    assert trees[0] == trees[1]
    assert len(trees[0]) == 8


def test_blank_lines_line_breaks_and_bad_rows_do_not_depend_on_slices(
    tmp_path: Path, config: Config
) -> None:
    lines = Path(config["manifest"]).read_text().splitlines()
    lines[2:5] = ["", 'red.png,"two\nlines, ""quoted"""', "red.png,a dog, running", "red.png"]
    Path(config["manifest"]).write_text("\n".join(lines))
    found = []
    for num_slices in (1, 3, 11):
        name, changes = str(num_slices), {"max_reject_share": 1.0}
        results, folder = run_preprocess(tmp_path / name, config | changes, num_slices)
        assert sum(result["num_rows"] for result in results) == 10
        found.append((keys_and_hashes(folder, num_slices), rejects_of(folder)))
    assert found[0] == found[1] == found[2]
    assert [reject["place"] for reject in found[0][1]] == ["train.csv:6", "train.csv:7"]


def test_result_counts_what_was_done(tmp_path: Path, config: Config) -> None:
    (result,), folder = run_preprocess(tmp_path, config)
    assert (result["num_rows"], result["num_samples"], result["num_images"]) == (10, 10, 10)
    assert result["num_tokens"] == samples_of(folder)["num_tokens"].sum()
    assert sum(result["num_tokens_histogram"].values()) == 10
    json.dumps(result)
    progress = json.loads((tmp_path / "task" / "progress.json").read_text())
    assert (progress["done"], progress["total"]) == (10, 10)


@pytest.mark.parametrize("image_format", get_args(ImageFormat))
def test_the_result_has_the_cost_of_the_stored_images(
    tmp_path: Path, config: Config, image_format: str
) -> None:
    (result,), folder = run_preprocess(tmp_path, config | {"image_format": image_format})
    with tarfile.open(PartPaths(output_dir=folder, slice_index=0).tar) as tar:
        sizes = [member.size for member in tar if ".image0." in member.name]
    price = result["stored_image"]
    assert (price["num_measured"], price["bytes"]) == (10, round(sum(sizes) / 10))
    assert price["decode_ms"] > 0
    is_lossy = image_format in {"jpeg", "webp"}
    assert (price["psnr_db"] is not None) == is_lossy
    assert not is_lossy or price["psnr_db"] > 20


def test_text_alone_has_no_stored_image(tmp_path: Path, config: Config) -> None:
    manifest = tmp_path / "text.jsonl"
    turns = [{"role": "user", "content": "ok?"}, {"role": "assistant", "content": "yes"}]
    manifest.write_text(json.dumps({"messages": turns}))
    (result,), _ = run_preprocess(tmp_path, config | {"manifest": str(manifest), "text_only": True})
    assert (result["num_samples"], result["stored_image"]) == (1, None)


def test_limit_takes_the_first_rows(tmp_path: Path, config: Config) -> None:
    results, folder = run_preprocess(tmp_path, config, 2, limit=5)
    assert [result["num_rows"] for result in results] == [2, 3]
    assert samples_of(folder, 1)["key"].tolist() == [2, 3, 4]


def test_rejects_have_a_reason_and_do_not_depend_on_the_folder_of_the_run(
    tmp_path: Path, processor_dir: Path
) -> None:
    lists = []
    for name in ("one", "other"):
        config = make_config(tmp_path / name, processor_dir) | {"max_reject_share": 1.0}
        break_rows(config, 4)
        (tmp_path / name / "source" / "red.png").write_bytes(b"")
        (result,), folder = run_preprocess(tmp_path / name, config)
        assert result["rejects_by_reason"] == {"empty_image": 4, "missing_image": 1}
        lists.append(rejects_of(folder))
    assert lists[0] == lists[1]
    (missing,) = [reject for reject in lists[0] if reject["reason"] == "missing_image"]
    assert (missing["row"], missing["source"], missing["place"]) == (4, "gone.png", "train.csv:6")


def test_too_many_rejects_fail_and_keep_their_list(tmp_path: Path, config: Config) -> None:
    break_rows(config, 4, 5)
    words = (
        r": 2 of 10 rows cannot be used \(missing_image 2\); .* allows 1\. The first is .*: no "
        r"such file\. Fix these rows, then `slurm-jobs resume \S+`\. To continue without them: "
        r"`slurm-jobs resume .* stages\.prep\.config\.max_reject_share=0\.2`\. Images .*\. "
        r"All rejects: "
    )
    with pytest.raises(StageConfigError, match=words):
        run(config, make_context(tmp_path, stage="prep"))
    (rejects,) = (tmp_path / "output" / "parts").iterdir()
    assert len(rejects.read_text().splitlines()) == 2


def test_images_elsewhere_fail_with_the_key_that_lets_them_in(
    tmp_path: Path, config: Config
) -> None:
    source = Path(config["manifest"]).parent
    moved = source.rename(tmp_path / "pool")
    source.mkdir()
    text = (moved / "train.csv").read_text().replace("\n", f"\n{moved}/").rstrip(f"{moved}/")
    Path(config["manifest"]).write_text(text + "\n")
    words = (
        rf"\(image_outside 10\).* may not read files outside of {source}; to allow it: "
        r"`slurm-jobs resume .* --set stages\.prep\.config\.images_within=FOLDER`"
    )
    with pytest.raises(StageConfigError, match=words):
        run(config, make_context(tmp_path, stage="prep"))
    result = run(config | {"images_within": str(moved)}, make_context(tmp_path, stage="prep"))
    assert result["num_rejected"] == 0


def test_slice_whose_rejects_the_whole_manifest_may_lose_is_no_failure(
    tmp_path: Path, processor_dir: Path
) -> None:
    config = make_config(tmp_path, processor_dir, 40) | {"max_reject_share": 0.05}
    break_rows(config, 0, 1)
    results, folder = run_preprocess(tmp_path, config, 10)
    assert [result["num_rejected"] for result in results] == [2] + [0] * 9
    index = read_part_index(PartPaths(output_dir=folder, slice_index=0).index)
    assert (index.rejects_by_reason, index.max_reject_share) == ({"missing_image": 2}, 0.05)
    assert "max_reject_share" not in index.settings


@pytest.mark.usefixtures("_stop_requested")
@pytest.mark.parametrize(
    ("deadline_unix_s", "error"),
    [
        (None, StageStoppedError("after 0 of 10 rows")),
        (0.0, StageConfigError(r"0 of 10 rows done .* or array\.num_slices")),
    ],
)
def test_stop_leaves_no_half_part_and_says_whether_another_attempt_helps(
    tmp_path: Path, config: Config, deadline_unix_s: float | None, error: Exception
) -> None:
    with pytest.raises(type(error), match=str(error)):
        run(config, make_context(tmp_path, deadline_unix_s=deadline_unix_s))
    assert not list((tmp_path / "output" / "parts").iterdir())


@pytest.mark.usefixtures("_stop_requested")
def test_slice_that_fits_the_time_limit_is_finished_despite_a_signal(
    tmp_path: Path, config: Config
) -> None:
    context = make_context(tmp_path, deadline_unix_s=time.time() + 300)
    assert run(config, context)["num_samples"] == 10


@pytest.mark.parametrize("text", ["image_path,text\n", "\n\n", ""])
def test_manifest_without_rows_is_refused(tmp_path: Path, config: Config, text: str) -> None:
    Path(config["manifest"]).write_text(text)
    with pytest.raises(StageConfigError, match="no rows; there is nothing to preprocess"):
        run(config, make_context(tmp_path))


def test_histogram_counts_up_to_powers_of_two() -> None:
    counts = {"2": 2, "4": 2, "8": 1, "64": 1, "128": 1}
    assert token_histogram([1, 2, 3, 4, 5, 64, 65]) == counts


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_tokens", 0), ("max_reject_share", 1.5), ("image_quality", 0), ("num_threads", 0)],
)
def test_config_out_of_range_names_the_field(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value}; allowed"):
        PreprocessConfig(manifest="m", processor="p", **{field: value})


def test_what_a_killed_attempt_left_of_its_own_part_is_removed(
    tmp_path: Path, config: Config
) -> None:
    parts = tmp_path / "output" / "parts"
    parts.mkdir(parents=True)
    own, other = parts / ".part-00000.tar.0123456789ab.tmp", parts / ".part-00001.tar.01.tmp"
    own.write_bytes(b"torn")
    other.write_bytes(b"another task's")
    run(config, make_context(tmp_path, config=config, num_slices=2))
    assert (own.exists(), other.exists()) == (False, True)


def test_a_slice_of_which_every_row_is_rejected_advises_no_greater_share(
    tmp_path: Path, config: Config
) -> None:
    break_rows(config, *range(10))
    with pytest.raises(StageConfigError, match=r"10 of 10 rows cannot be used") as caught:
        run(config, make_context(tmp_path, stage="prep"))
    assert "config.max_reject_share=" not in str(caught.value)


def test_keys_that_are_not_read_are_counted_and_logged_once(
    tmp_path: Path, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = Path(config["manifest"])
    header, *lines = manifest.read_text().splitlines()
    manifest.write_text("\n".join([f"{header},mood", *(f"{line},glad" for line in lines)]) + "\n")
    result = run(config, make_context(tmp_path, stage="prep"))
    assert result["ignored_keys"] == {"mood": 10}
    assert [r.message for r in caplog.records if "not read: `mood` (10 rows)" in r.message]
