"""Held-out images and annotations, by the names of folders and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.commands.starter.images.image_folder import read_image_folder
from tests.slurm_jobs.commands.starter.images.made_folders import notes, rows, touch, write

NEITHER = "neither train nor evaluation"


@pytest.mark.parametrize(
    ("train", "held", "kind"),
    [
        ("train", "val", "validation"),
        ("Train", "Validation", "validation"),
        ("TRAIN", "VALID", "validation"),
        ("training", "dev", "validation"),
        ("train", "eval", "validation"),
        ("train", "test", "test"),
        ("train2017", "val2017", "validation"),
        ("train_images", "test_images", "test"),
        ("images/train", "images/val", "validation"),
        ("trainval", "test", "test"),
        ("train", "validate", "validation"),
        ("train", "holdout", "validation"),
        ("train", "held_out", "validation"),
        ("trn", "tst", "test"),
        ("trainA", "testA", "test"),
        ("Train_set", "test-A", "test"),
        ("train-00", "val-00", "validation"),
        ("data/images/train", "data/images/test", "test"),
        ("a/b/c/train", "a/b/c/test", "test"),
        ("split=train", "split=test", "test"),
        ("01_train", "02_test", "test"),
        ("train+val", "test-dev2017", "test"),
        ("coco_train2017", "coco_val2017", "validation"),
        ("DIV2K_train_HR", "DIV2K_valid_HR", "validation"),
        ("imagesTr", "imagesTs", "test"),
        ("images", "test", "test"),
    ],
)
@pytest.mark.parametrize("has_texts", [True, False])
def test_train_is_trained_on_and_another_split_evaluated(
    tmp_path: Path, train: str, held: str, kind: str, has_texts: bool
) -> None:
    for split in (train, held):
        for name in ("cat", "dog"):
            touch(tmp_path, f"{split}/{name}/1.jpg")
            if has_texts:
                write(tmp_path, **{f"{split}/{name}/1.txt": f"a {name}"})
    found = read_image_folder(tmp_path)
    words = ("a cat", "a dog") if has_texts else ("cat", "dog")
    assert rows(tmp_path) == {
        f"{train}/cat/1.jpg": words[0],
        f"{train}/dog/1.jpg": words[1],
    }
    assert found.evaluation is not None
    assert found.evaluation.files == tuple(tmp_path / held / n / "1.jpg" for n in ("cat", "dog"))
    assert found.evaluation.words == words
    assert f"splits: train is trained on, {kind} is evaluated" in found.notes


@pytest.mark.parametrize("has_texts", [True, False])
@pytest.mark.parametrize(
    ("names", "trained", "said"),
    [
        (
            ["train/a/1", "train/b/1", "extra/a/2"],
            ["train/a/1", "train/b/1"],
            "left out: 1 image of neither",
        ),
        (
            ["train/a/1", "train/b/1", "more/a/2"],
            ["train/a/1", "train/b/1"],
            "left out: 1 image of neither",
        ),
        (
            ["Train_set/a/1", "Train_set/b/1", "test-A/a/2", "test-B/a/3"],
            ["Train_set/a/1", "Train_set/b/1"],
            "test is evaluated",
        ),
        (["a/1", "b/1", "test/a/1", "test/b/1"], ["a/1", "b/1"], "test is evaluated"),
        (["a/train/1", "a/test/2", "b/train/1"], ["a/train/1", "b/train/1"], "test is evaluated"),
        (
            ["train/a/1", "train/test/1", "val/a/1"],
            ["train/a/1", "train/test/1"],
            "not used as splits",
        ),
        (
            ["a/train_001", "b/train_002", "a/test_001"],
            ["a/train_001", "b/train_002"],
            "test is evaluated",
        ),
        (
            ["a/COCO_train2014_1", "b/COCO_train2014_3", "a/COCO_val2014_2"],
            ["a/COCO_train2014_1", "b/COCO_train2014_3"],
            "validation is ev",
        ),
        (["a/1", "a/test_1", "b/test_2"], ["a/1", "a/test_1", "b/test_2"], "2 of 3 file names"),
        (
            ["car/1", "train/1", "test_tube/1"],
            None,
            "despite their names: test_tube, train; if one",
        ),
        (["v/car/1", "v/train/1", "w/cat/1"], None, "despite their names: v/train; if one"),
        (["v/train/1", "w/cat/1"], None, "despite their names: v/train; if one"),
    ],
)
def test_no_split_is_trained_on_in_silence(
    tmp_path: Path, names: list[str], trained: list[str] | None, said: str, has_texts: bool
) -> None:
    touch(tmp_path, *(f"{name}.jpg" for name in names))
    if has_texts:
        write(tmp_path, **{f"{name}.txt": "words" for name in names})
    expected = {f"{name}.jpg" for name in (names if trained is None else trained)}
    assert rows(tmp_path).keys() == expected
    assert said in notes(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *("masks", "Mask", "annotations", "labels", "segmentation", "seg", "gt", "groundtruth"),
        *("ground_truth", "depth", "normals", "thumbnails", "SegmentationClass", "gtFine"),
        *("label_2", "train_masks", "image_masks", "labelsTr", "masks/cat"),
    ],
)
def test_pictures_of_annotations_are_left_out(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "cat/1.jpg", f"{name}/1.png", "cat/1_mask.png", "dog/1_mask.png")
    assert rows(tmp_path) == {"cat/1.jpg": "cat", "dog/1_mask.png": "dog"}
    assert f"left out: 1 image in {name.removesuffix('/cat')}: its name says" in notes(tmp_path)
    assert "left out: 1 image in *_mask.png: its name says" in notes(tmp_path)


def test_a_word_that_all_folders_share_says_nothing_of_annotations(tmp_path: Path) -> None:
    trained = {f"seg_train/seg_train/{name}/1.jpg": name for name in ("cat", "dog")}
    touch(tmp_path, *trained, "seg_test/seg_test/cat/2.jpg", "seg_pred/seg_pred/3.jpg")
    assert rows(tmp_path) == trained
    said = ("splits: train is trained on, test is evaluated", f"left out: 1 image of {NEITHER}")
    assert read_image_folder(tmp_path).notes == said


def test_of_three_splits_the_test_is_left_for_the_end(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        touch(tmp_path, f"{split}/cat/1.jpg", f"{split}/cat/2.jpg", f"{split}/dog/1.jpg")
    touch(tmp_path, "readme.png", "extra/1.jpg")
    found = read_image_folder(tmp_path)
    assert {file.parts[-3] for file in found.train.files} == {"train"}
    assert found.evaluation is not None
    assert {file.parts[-3] for file in found.evaluation.files} == {"val"}
    assert "left out: 3 images of test" in found.notes
    assert "left out: 2 images of neither train nor evaluation" in found.notes


def test_images_outside_of_the_held_out_split_are_trained_on(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg", "val/2.jpg")
    write(tmp_path, **{"1.txt": "one", "val/2.txt": "two"})
    assert rows(tmp_path) == {"1.jpg": "one"}
    found = read_image_folder(tmp_path)
    assert found.evaluation is not None
    assert found.evaluation.words == ("two",)
