"""What `init` makes of a folder of images: nothing is misread or left out in silence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.preprocess.manifest import read_manifest
from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.starter.data_inspection import is_image_folder
from slurm_jobs.commands.starter.images.image_folder import metadata_files, read_image_folder
from tests.slurm_jobs.commands.starter.images.made_folders import notes, rows, touch, write

BOX = "0 0.5 0.5 0.2 0.3\n"
KNOWN_BY_SUFFIX = "images and captions are recognised by their suffixes"


def test_texts_next_to_images_are_their_words(tmp_path: Path) -> None:
    touch(tmp_path, "b/dog.PNG", "cat.jpg", "none.webp", ".hidden/x.jpg", "notes.md")
    (tmp_path / "cat.txt").write_text('a "cat",\n on a mat\n')
    (tmp_path / "b" / "dog.txt").write_text("\ufeffein Hund")
    assert is_image_folder(tmp_path)
    found = read_image_folder(tmp_path)
    text = found.train.manifest(tmp_path)
    assert text == (
        '{"image_path": "b/dog.PNG", "text": "ein Hund"}\n'
        '{"image_path": "cat.jpg", "text": "a \\"cat\\",\\n on a mat"}\n'
    )
    assert found.notes == (
        "left out: 1 image without words (none.webp)",
        "left out: 1 file of other kinds: 1 .md (notes.md); " + KNOWN_BY_SUFFIX,
        "left out: 1 file or folder, hidden or from a system or file server: 1 .hidden",
    )


@pytest.mark.parametrize(
    ("images", "texts", "expected", "said"),
    [
        *(
            (image, {caption: "a cup"}, {image: "a cup"}, "")
            for image, caption in (
                *(("k.jpg", "k.TXT"), ("k.jpg", "k.Txt"), ("i.jpg", "i.jpg.txt")),
                *(("i.JPG", "i.JPG.TXT"), ("a.b.png", "a.b.txt"), ("a.b.png", "a.b.png.txt")),
                *(("c.jfif", "c.caption"), ("d.avif", "d.txt"), ("e.jpe", "e.jpe.caption")),
            )
        ),
        (
            *("i.jpg i.png", {"i.txt": "a cup"}, {"i.jpg": "a cup", "i.png": "a cup"}),
            "1 caption shared by images of one name, as the words of each (i.txt)",
        ),
        # folders of classes are the words where there are no texts
        (
            *("red_square/1.jpg x/deep/2.jpg 3.jpg", {}),
            {"red_square/1.jpg": "red square", "x/deep/2.jpg": "deep"},
            "left out: 1 image without words (3.jpg)",
        ),
        (
            *("cat/train/1.jpg cat/test/2.jpg dog/train/images/1.jpg", {}),
            *({"cat/train/1.jpg": "cat", "dog/train/images/1.jpg": "dog"}, ""),
        ),
        # classes may be called like splits and annotations
        (
            *("car/1.jpg test/1.jpg", {}, {"car/1.jpg": "car", "test/1.jpg": "test"}),
            "not used as splits, despite their names: test;",
        ),
        ("car/1.jpg train/1.jpg", {}, {"car/1.jpg": "car", "train/1.jpg": "train"}, ""),
        ("mask/1.jpg no_mask/2.jpg", {}, {"mask/1.jpg": "mask", "no_mask/2.jpg": "no mask"}, ""),
        ("masks/1.jpg no_mask/2.jpg", {}, {"masks/1.jpg": "masks", "no_mask/2.jpg": "no mask"}, ""),
        # captions are judged by most files
        *(
            (
                "1.jpg 2.jpg 3.jpg 4.jpg",
                {
                    "1.txt": "a cup",
                    "2.txt": "1 2 3 4 5",
                    "3.txt": "0 0.5 0.5 0.2 0.3",
                    "4.txt": "7",
                },
                {"1.jpg": "a cup", "2.jpg": "1 2 3 4 5", "4.jpg": "7"},
                said,
            )
            for said in (
                "1 text file of labels, not words (3.txt)",
                "1 caption of one number alone (4.txt), trained on as it is",
            )
        ),
    ],
)
def test_words_of_images_are_their_captions_or_the_names_of_their_folders(
    tmp_path: Path, images: str, texts: dict[str, str], expected: dict[str, str], said: str
) -> None:
    touch(tmp_path, *images.split())
    write(tmp_path, **texts)
    assert rows(tmp_path) == expected
    assert said in notes(tmp_path)


@pytest.mark.parametrize(
    ("images", "texts", "said"),
    [
        ("1.jpg", {}, "1 image and no words for them: put a text file"),
        ("a.heic b.HEIF", {}, r"no image that can be opened\. left out: 1 \.heic file"),
        ("val/cat/1.jpg test/cat/1.jpg", {}, "images for test and validation and none for train"),
        # folders next to plain images, or of images of anything, are no classes
        ("images/1.jpg masks/1.png", {}, "no words for them.*masks"),
        ("images/1.jpg overview/1.png", {}, "no words for them.*overview"),
        *(
            (f"{folder}/1.jpg", {}, "1 image and no words for them")
            for folder in ("images", "JPEGImages", "photos", "data")
        ),
        *(
            (
                "images/train/1.jpg images/train/2.jpg images/val/1.jpg images/val/2.jpg",
                {
                    f"{labels}/{split}/{number}.txt": text
                    for split in ("train", "val")
                    for number, text in ((1, BOX), (2, ""))
                },
                r"`0 0\.5 0\.5 0\.2 0\.3` is a YOLO label .*2 of 4 text",
            )
            for labels in ("images", "labels")
        ),
        (
            *(
                "images/1.jpg",
                {"annotations/captions_train2017.json": "{}", "images/1.xml": "<a/>"},
            ),
            r"not read: 2 files of lists .*captions_train2017\.json",
        ),
    ],
)
def test_images_without_words_are_refused_with_what_to_do(
    tmp_path: Path, images: str, texts: dict[str, str], said: str
) -> None:
    touch(tmp_path, *images.split())
    write(tmp_path, **texts)
    assert is_image_folder(tmp_path)
    with pytest.raises(InputError, match=said):
        read_image_folder(tmp_path)


@pytest.mark.parametrize(
    "images",
    [
        *(f"{name}/1.jpg {name}/2.jpg" for name in ("frames", "batch_01", "000", "coco", "assets")),
        "patient001/study1/1.jpg patient002/study1/1.jpg",
        "train/cat/1.jpg val/cat/1.jpg val/dog/1.jpg",
    ],
)
def test_one_folder_name_for_all_images_is_no_class(tmp_path: Path, images: str) -> None:
    touch(tmp_path, *images.split())
    write(tmp_path, **{"about.json": "{}"})
    printed = refusal(tmp_path)
    assert "would be the text of all of them: put a text file" in printed
    assert "If you want this one text for all of them, write it into such text files" in printed
    assert "not read: 1 file of lists or labels (about.json)" in printed


def test_folder_names_are_no_texts_if_a_list_names_the_images(tmp_path: Path) -> None:
    touch(tmp_path, "part_1/1.jpg", "part_2/2.jpg")
    list_text = "image,text\npart_1/1.jpg,a cup\npart_2/2.jpg,a mug\n"
    write(tmp_path, **{"all.csv": list_text, "classes.csv": "7,cup\n"})
    assert f"{tmp_path}/all.csv names them: if it has the text" in refusal(tmp_path)
    assert f"`--data {tmp_path}/all.csv`" in refusal(tmp_path)
    write(tmp_path, **{"train.jsonl": '{"image": "1.jpg"}\n{"image": "2.jpg"}\n'})
    assert "train.jsonl names them (so do all.csv): if" in refusal(tmp_path)
    write(tmp_path, **{"part_1/1.txt": "a cup"})
    assert rows(tmp_path) == {"part_1/1.jpg": "a cup"}


@pytest.mark.parametrize(
    ("images", "listing", "way"),
    [
        ("train/cat/1.jpg, train/dog/2.jpg", "all.csv", "--data {data}/train`"),
        ("a b/cat/1.jpg, a b/dog/2.jpg", "lists/all.csv", "--data '{data}/a b'`"),
        ("cat/1.jpg, dog/2.jpg", "all.csv", "ln -s {data}/cat {data}/dog NEW_FOLDER`"),
        ("in/cat/1.jpg, dog/2.jpg", "in/all.csv", "ln -s {data}/dog {data}/in/cat NEW_FOLDER`"),
        ("cat/1.jpg, dog/2.jpg", "cat/all.csv", "a folder of links to the images (`ln -s`)"),
        ("all/1.jpg, all/2.jpg", "all.csv", ""),
    ],
)
def test_a_refused_list_leaves_a_way_to_the_names_of_class_folders(
    tmp_path: Path, images: str, listing: str, way: str
) -> None:
    data = tmp_path / "data"
    touch(data, *images.split(", "))
    write(data, **{listing: "1.jpg,a cup\n2.jpg,a mug\n"})
    printed = refusal(data)
    assert way.format(data=data) in printed
    assert ("names of class folders" in printed) == bool(way)


def test_class_folders_are_read_without_a_list_next_to_them(tmp_path: Path) -> None:
    data, links = tmp_path / "data", tmp_path / "links"
    touch(data, "train/cat/1.jpg", "train/dog/2.jpg")
    write(data, **{"all.csv": "1.jpg,a cup\n2.jpg,a mug\n"})
    words = {"cat/1.jpg": "cat", "dog/2.jpg": "dog"}
    assert rows(data / "train") == words
    links.mkdir()
    for name in ("cat", "dog"):
        (links / name).symlink_to(data / "train" / name)
    assert rows(links) == words


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"A cat.\n\n  It sleeps.\n", "A cat.\n\n  It sleeps."),
        (b"A cat.\r\nIt sleeps.\r\n", "A cat.\nIt sleeps."),
        (b"\xef\xbb\xbfA cat.\rIt sleeps.", "A cat.\nIt sleeps."),
        (b"name,text\na.jpg,words\nb.jpg,words\n", "name,text\na.jpg,words\nb.jpg,words"),
        (b'a "quote,\nnever closed', 'a "quote,\nnever closed'),
        (b"tab\there\x0bthere", "tab\there\x0bthere"),
    ],
)
def test_a_caption_reaches_the_job_with_its_line_breaks(
    tmp_path: Path, content: bytes, text: str
) -> None:
    touch(tmp_path / "data", "i.jpg")
    (tmp_path / "data" / "i.txt").write_bytes(content)
    manifest = tmp_path / "m.jsonl"
    manifest.write_text(read_image_folder(tmp_path / "data").train.manifest(tmp_path / "data"))
    (row,) = read_manifest(manifest)
    assert (row.problem, row.messages[-1].role, row.messages[-1].text) == ("", "assistant", text)


def test_a_text_of_a_megabyte_is_no_caption(tmp_path: Path) -> None:
    touch(tmp_path, "i.jpg")
    (tmp_path / "i.txt").symlink_to("/dev/zero")  # neither a file nor a caption
    assert "not read: 1 path that cannot be opened" in refusal(tmp_path)
    (tmp_path / "i.txt").unlink()
    write(tmp_path, **{"i.txt": "long " * 250_000})
    assert "over 1,000,000 bytes" in refusal(tmp_path)


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_image_folder(folder)
    return str(caught.value)


def test_files_with_the_name_of_an_image_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.jpg", "dog/1.jpg")
    write(
        tmp_path,
        **{
            "cat/empty.jpg": "",
            "cat/page.png": "<!DOCTYPE html>",
            "cat/lfs.png": "version https://git-lfs.github.com/spec/v1",
        },
    )
    assert rows(tmp_path) == {"cat/1.jpg": "cat", "dog/1.jpg": "dog"}
    printed = notes(tmp_path)
    assert "1 file with the name of an image, but empty (empty.jpg)" in printed
    assert "but in no format that is opened (page.png)" in printed
    assert "but a pointer of Git LFS; fetch the file with `git lfs pull` (lfs.png)" in printed


def test_two_captions_that_differ_are_refused_and_equal_ones_taken(tmp_path: Path) -> None:
    touch(tmp_path, "i.jpg")
    write(tmp_path, **{"i.txt": "a cup", "i.jpg.txt": "a  cup\n"})
    assert rows(tmp_path) == {"i.jpg": "a  cup"}
    write(tmp_path, **{"i.jpg.txt": "a mug"})
    with pytest.raises(InputError, match=r"two captions that differ, i\.jpg\.txt and i\.txt: keep"):
        read_image_folder(tmp_path)


def test_what_is_left_out_is_counted_and_named(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.heic", "e.HEIC", "f.cr2", "g.svg", "h.mp4")
    write(tmp_path, **{"a.txt": "a cup", "b.txt": " ", "z.txt": "alone", "a.json": "{}"})
    told = notes(tmp_path)
    assert rows(tmp_path) == {"a.jpg": "a cup"}
    assert "left out: 2 images without words (b.jpg, c.jpg)" in told
    assert "left out: 2 .heic files, not opened as images (d.heic, e.HEIC): convert" in told
    assert "left out: 1 .cr2 file" in told
    assert "left out: 1 .svg file" in told
    assert "left out: 1 .mp4 file" in told
    assert "left out: 1 text file without image (z.txt)" in told
    assert "1 caption empty (b.txt)" in told
    assert "not read: 1 file of lists or labels (a.json); to use one, name it" in told


def test_files_of_no_known_kind_are_counted_by_suffix(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "cat/1.jpg",
        "dog/1.jpg",
        "a.jpg_large",
        "b.jpg_large",
        "c.JPEG~",
        "picture",
        "a.md",
    )
    touch(tmp_path, "a.text", "a.cap", "a.tags")
    expected = (
        "8 files of other kinds: 2 .jpg_large, 1 .cap, 1 .md, 1 .tags, 1 .text, 1 .JPEG~, 1 no"
    )
    assert expected in notes(tmp_path)


def test_the_lists_of_an_image_folder_are_its_manifests(tmp_path: Path) -> None:
    assert metadata_files(tmp_path) == (None, None)
    write(tmp_path, **{"Train/metadata.jsonl": "{}", "validation/metadata.csv": "a"})
    lists = (tmp_path / "Train/metadata.jsonl", tmp_path / "validation/metadata.csv")
    assert metadata_files(tmp_path) == lists
    write(tmp_path, **{"metadata.csv": "a"})
    assert metadata_files(tmp_path) == (tmp_path / "metadata.csv", None)
    write(tmp_path, **{"metadata.jsonl": "a"})
    with pytest.raises(InputError, match=r"has metadata\.jsonl and metadata\.csv: name one"):
        metadata_files(tmp_path)


def test_folders_behind_links_are_read_once(tmp_path: Path) -> None:
    touch(tmp_path, "elsewhere/cat/1.jpg", "elsewhere/dog/1.jpg")
    data = tmp_path / "data"
    data.mkdir()
    (data / "train").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "cat" / "loop").symlink_to(tmp_path / "elsewhere")
    assert rows(data) == {"train/cat/1.jpg": "cat", "train/dog/1.jpg": "dog"}


def test_all_texts_that_are_no_utf_8_are_counted_and_named(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg", "2.jpg", "3.jpg")
    (tmp_path / "2.txt").write_text("café")
    for name in ("1.txt", "3.txt"):
        (tmp_path / name).write_bytes(b"caf\xe9")
    words = r"2 text files of 3 not in UTF-8 \(1\.txt, 3\.txt\); save them as UTF-8"
    with pytest.raises(InputError, match=words):
        read_image_folder(tmp_path)


def test_a_text_that_no_image_has_may_be_in_any_encoding(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.jpg", "dog/1.jpg")
    (tmp_path / "README.txt").write_bytes(b"caf\xe9")
    assert rows(tmp_path) == {"cat/1.jpg": "cat", "dog/1.jpg": "dog"}
    assert "left out: 1 text file without image (README.txt)" in notes(tmp_path)


def test_a_name_that_no_manifest_can_hold_is_refused(tmp_path: Path) -> None:
    touch(tmp_path / "cat", os.fsdecode(b"caf\xe9.jpg"))
    with pytest.raises(InputError, match=r"caf\\udce9\.jpg': its name is not UTF-8"):
        read_image_folder(tmp_path)
