"""Held-out rows as prompts, those that are left out, and rows that are all unusable."""

import dataclasses

import pytest

from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.preprocess.rejects import SampleRejectedError
from pipeline.train import stage
from pipeline.train.held_out_rows import make_encoder, read_rows
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.stages import ManifestEntry
from slurm_jobs.formats.configs.train import EvaluateConfig
from tests.pipeline.build import run_consolidate, run_preprocess, write_csv_manifest


@pytest.fixture(scope="module")
def preprocess_settings(tmp_path_factory, processor_dir):
    """What `dataset.json` says of a data set with settings of its own."""
    folder = tmp_path_factory.mktemp("dataset")
    config = {
        "manifest": str(write_csv_manifest(folder / "source", 3)),
        "processor": str(processor_dir),
        "prompt": "Which colour?",
        "system_prompt": "Be brief.",
        "max_tokens": 80,
        "max_pixels": 2000,
        "num_threads": 1,
    }
    _, parts_dir = run_preprocess(folder / "prep", config)
    return read_dataset_info(run_consolidate(folder / "set", parts_dir)[1]).preprocess


def test_heldout_rows_are_asked_as_the_training_rows_were(
    tmp_path, processor_dir, preprocess_settings
):
    manifest = write_csv_manifest(tmp_path / "heldout", 3)
    config = EvaluateConfig(manifest=str(manifest), num_samples=2)
    rows = read_rows(config, preprocess_settings)
    encoder = make_encoder(config, preprocess_settings, processor_dir)
    asked = [encoder.chat.tokenizer.decode(encoder.encode_prompt(row).input_ids) for row in rows]
    assert len(asked) == 2
    assert all("system\nBe brief." in text and "Which colour?" in text for text in asked)


@pytest.mark.parametrize(
    ("limit", "words"),
    [({"max_tokens": 20}, "max_tokens is 20"), ({"max_images": 0}, "max_images is 0"),
     ({"max_pixels": 1000}, "max_pixels is 1000")],
)  # fmt: skip
def test_heldout_rows_over_a_limit_of_the_data_set_are_left_out(
    tmp_path, processor_dir, preprocess_settings, limit, words
):
    config = EvaluateConfig(manifest=str(write_csv_manifest(tmp_path / "heldout", 1)))
    settings = {**preprocess_settings, **limit}
    (row,) = read_rows(config, settings)
    encoder = make_encoder(config, settings, processor_dir)
    with pytest.raises(SampleRejectedError, match=words):
        encoder.encode_prompt(row)


def test_heldout_images_may_lie_elsewhere_than_their_manifest(
    tmp_path, processor_dir, preprocess_settings
):
    manifest = write_csv_manifest(tmp_path / "images", 1).rename(tmp_path / "heldout.csv")
    config = EvaluateConfig(manifest=str(manifest))
    (row,) = read_rows(config, preprocess_settings)
    with pytest.raises(SampleRejectedError, match="no such file"):
        make_encoder(config, preprocess_settings, processor_dir).encode_prompt(row)
    there = dataclasses.replace(config, image_root=str(tmp_path / "images"))
    make_encoder(there, preprocess_settings, processor_dir).encode_prompt(row)


def test_of_a_list_the_first_rows_of_each_manifest_are_read(
    tmp_path, processor_dir, preprocess_settings
):
    manifests = [
        ManifestEntry(path=str(write_csv_manifest(tmp_path / name, 5)), name=name)
        for name in ("one", "two")
    ]
    config = EvaluateConfig(manifest=tuple(manifests), num_samples=9)
    rows = read_rows(config, preprocess_settings, most=4)
    names = [(row.origin.listed.name, row.origin.row) for row in rows]
    assert names == [("one", 0), ("one", 1), ("two", 0), ("two", 1)]
    encoder = make_encoder(config, preprocess_settings, processor_dir)
    assert len({encoder.encode_prompt(row).key for row in rows}) == 4


NOTHING_TO_ASK = r"heldout/train\.csv: none of its 3 rows can be used \(first: .*red\.png"


def without_images(manifest):
    for image in manifest.parent.glob("*.png"):
        image.unlink()
    return manifest


def test_heldout_rows_that_are_all_unusable_fail_before_any_step(asking):
    run, manifest = asking
    for image in manifest.parent.glob("*.png"):
        image.write_bytes(b"")
    # `image_root` is no remedy for rows whose images are there.
    with pytest.raises(StageConfigError, match=r"zero bytes\); fix it, or disable evaluation with"):
        run.run_here()
    without_images(manifest)
    with pytest.raises(StageConfigError, match=NOTHING_TO_ASK) as raised:
        run.run_here()
    assert "; fix it, set evaluate.image_root, or disable" in str(raised.value)
    assert not (run.output_dir / "checkpoints").exists()
    manifest.write_text("image_path,text\n")
    with pytest.raises(StageConfigError, match=r"heldout/train\.csv: it has no rows"):
        run.run_here()


def test_heldout_rows_unusable_after_training_fail_the_evaluation(asking, monkeypatch):
    run, manifest = asking
    monkeypatch.setattr(stage, "check_heldout", lambda *_, **__: without_images(manifest))
    with pytest.raises(StageConfigError, match=NOTHING_TO_ASK):
        run.run_here()
    assert not (run.output_dir / "evaluation.json").exists()
