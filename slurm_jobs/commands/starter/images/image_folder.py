"""Converter of a folder of images into rows of image and text: captions in files, or classes.

Everything in the folder is either used or counted and named: images that cannot be opened, captions
without an image, label files of other tasks, and the splits that are not trained on.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.base.units import number_of
from slurm_jobs.base.written_values import printable
from slurm_jobs.commands.starter.images.folder_files import (
    file_notes,
    list_files,
    named,
    refuse_unwritable,
    stems_of,
    without_damaged,
)
from slurm_jobs.commands.starter.images.image_splits import (
    PLAIN_NAMES,
    split_images,
    without_drawings,
)
from slurm_jobs.commands.starter.images.label_files import is_number, label_kind
from slurm_jobs.commands.starter.images.picture_lists import lists_of_pictures
from slurm_jobs.formats.manifests.splits import Split, split_of

_TRAIN: Split = "train"
_VALIDATION: Split = "validation"
_TEST: Split = "test"
_METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
"""Manifests of Hugging Face's ImageFolder."""
_LABEL_BYTES = 4096
"""Beginning of a text by which labels of another task are recognised."""
_MOST_CAPTION_BYTES = 1_000_000
"""More than the context of the models that can be trained."""
_MOST_LINKS = 3
"""Folders that a message names for a command."""
_REMEDY = (
    "put a text file next to each (cat.txt next to cat.jpg), sort them into folders named after "
    "what they show, or name a manifest (docs/guides/data/manifests.md says what one looks like)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Images of one split with their words."""

    files: tuple[Path, ...]
    words: tuple[str, ...]

    def manifest(self, root: Path) -> str:
        """Return the rows as JSON lines, with paths relative to `root`.

        In CSV, a line of a caption may look like a row, and the reader would take the quote for an
        unclosed one.
        """
        lines = []
        for file, words in zip(self.files, self.words, strict=True):
            row = {"image_path": file.relative_to(root).as_posix(), "text": words}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        return "".join(lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFolder:
    """Training data found in a folder of images."""

    train: Rows
    evaluation: Rows | None
    """None where there is no split for it."""
    notes: tuple[str, ...]
    """Messages about choices and files that were left out."""
    classes: tuple[str, ...] = ()
    """Texts for training, where they are the names of folders; empty where they are captions."""


def metadata_files(folder: Path) -> tuple[Path | None, Path | None]:
    """Return the manifests of Hugging Face's ImageFolder for training and evaluation.

    Raises:
        InputError: a folder has two of them.
    """
    metadata = _metadata_of(folder)
    if metadata is not None:
        return metadata, None
    manifests: dict[str, Path] = {}
    for child in sorted(path for path in folder.iterdir() if path.is_dir()):
        split = split_of(child.name)
        manifest = _metadata_of(child) if split else None
        if split and manifest is not None:
            manifests.setdefault(split, manifest)
    return manifests.get(_TRAIN), manifests.get(_VALIDATION) or manifests.get(_TEST)


def _metadata_of(folder: Path) -> Path | None:
    files = [folder / name for name in _METADATA if (folder / name).is_file()]
    if len(files) > 1:
        names = " and ".join(path.name for path in files)
        message = f"{folder} has {names}: name one of them as the manifest"
        raise InputError(message)
    return files[0] if files else None


def read_image_folder(folder: Path) -> ImageFolder:
    """Read the images below a folder and the words that go with each.

    Words are those of a text file next to the image (`cat.txt`, `cat.jpg.txt` or `cat.caption` for
    `cat.jpg`). Where no image has one, they are the name of the folder that the image is in, unless
    all would have the same name, or a list in the folder names most images. Subfolders named train,
    val and test are splits: `train` is trained on, `val` evaluated. Masks and other pictures of
    annotations are left out.

    Raises:
        InputError: no image has words, words are labels of another task, contradict each other, or
            are in a list, or there are splits and none to train on.
    """
    files = list_files(folder)
    all_captions = files.by_kind["caption"]
    refuse_unwritable([*files.by_kind["image"], *all_captions])
    all_images, damaged = without_damaged(sorted(files.by_kind["image"]))
    by_stem: dict[Path, list[Path]] = {}
    for image in all_images:
        for stem in stems_of(image):
            by_stem.setdefault(stem, []).append(image)
    captions: dict[Path, list[Path]] = {}  # of each image; without one the caption itself is key
    for caption in all_captions:
        for image in by_stem.get(caption.with_suffix(""), [caption]):
            captions.setdefault(image, []).append(caption)
    captioned = {image for image in all_images if image in captions}
    next_to = sorted({file for image in captioned for file in captions[image]})
    texts = _texts(next_to)
    images, drawn = without_drawings(folder, all_images, captioned)
    if not next_to:  # they may be in a list, and labels in a folder of their own
        _refuse_lists(folder, lists_of_pictures(files.by_kind["list"], images), images)
        texts = {file: _beginning(file) for file in all_captions}
    labels = _labels(folder, texts)
    labels += _number_notes(texts) if next_to else []
    splits = split_images(folder, images, has_texts=bool(captioned))
    chosen, notes = _choose(folder, splits.images)
    notes += [*splits.notes, *drawn, *damaged, *labels]
    used = [image for images in chosen.values() for image in images]
    words, more = _words_of(folder, used, captions, texts, splits.folders)
    notes += more
    rows = {}
    left_out = []
    for name, images in chosen.items():
        without = [image for image in images if not words[image]]
        if without:
            where = f" of {name}" if len(splits.images) > 1 else ""
            number = number_of("image", len(without))
            left_out.append(f"left out: {number}{where} without words ({named(without)})")
        rows[name] = _rows_with_words(images, words)
    notes_on_files = file_notes(files, texts if next_to else {})
    if not rows["train"].files:
        details = "".join(f". {note}" for note in (*notes, *notes_on_files))
        message = f"{folder} has no image that can be opened{details}"
        if all_images:
            message = (
                f"{folder} has {number_of('image', len(all_images))} and no words for them: "
                f"{_REMEDY}{details}"
            )
        raise InputError(message)
    notes += [*left_out, *notes_on_files]
    classes = () if next_to else tuple(dict.fromkeys(rows["train"].words))
    if len(classes) == 1:
        message = (
            f"{folder} has {number_of('image', len(rows['train'].files))} without a text, and the "
            f"name of their folder, `{printable(classes[0])}`, would be the text of all of them: "
            f"{_REMEDY}. If you want this one text for all of them, write it into such text files "
            f"or into a manifest{''.join(f'. {note}' for note in notes)}"
        )
        raise InputError(message)
    evaluation = rows.get("evaluation")
    if evaluation is not None and not evaluation.files:
        notes.append("nothing is evaluated, because no image of that split has words")
    return ImageFolder(
        train=rows["train"],
        evaluation=evaluation if evaluation is not None and evaluation.files else None,
        notes=tuple(notes),
        classes=classes,
    )


def _refuse_lists(folder: Path, lists: Sequence[Path], images: Sequence[Path]) -> None:
    """Raise InputError for lists that name the images, of which the first is for training."""
    if not lists:
        return
    others = f" (so do {named(lists[1:])})" if len(lists) > 1 else ""
    message = (
        f"{folder} has images without a text file next to them, and {lists[0]} names them{others}: "
        f"if it has the text of each image, name it as the manifest, `--data "
        f"{shlex.quote(str(lists[0]))}`, otherwise write a manifest from it "
        "(docs/guides/data/manifests.md)"
    )
    if len({image.parent for image in images}) > 1:  # they may be sorted into classes
        way = _way_to_classes(lists, images)
        message += f". To train on the names of class folders instead, name {way}"
    raise InputError(message)


def _way_to_classes(lists: Sequence[Path], images: Sequence[Path]) -> str:
    """Return how to train on the names of folders in spite of the lists, without changing data."""
    with_lists = {parent for file in lists for parent in file.parents}
    highest: set[Path] = set()  # folders that have images and no list
    for parent in {image.parent for image in images}:
        if parent in with_lists:
            return "a folder of links to the images (`ln -s`), without the list"
        above = itertools.takewhile(lambda path: path not in with_lists, parent.parents)
        highest.add([parent, *above][-1])
    tops = sorted(highest)
    if len(tops) == 1:
        return f"the folder without the list, `--data {shlex.quote(str(tops[0]))}`"
    linked = " ".join(shlex.quote(str(top.absolute())) for top in tops[:_MOST_LINKS])
    linked += " ..." if len(tops) > _MOST_LINKS else ""
    return (
        "a new folder of links to the class folders, `mkdir NEW_FOLDER && ln -s "
        f"{linked} NEW_FOLDER`"
    )


def _rows_with_words(images: Sequence[Path], words: Mapping[Path, str | None]) -> Rows:
    labelled: dict[Path, str] = {}
    for image in images:
        text = words[image]
        if text:
            labelled[image] = text
    return Rows(files=tuple(labelled), words=tuple(labelled.values()))


def _choose(
    folder: Path, splits: Mapping[Split | None, list[Path]]
) -> tuple[dict[str, list[Path]], list[str]]:
    """Return the images to train on and to evaluate, and notes on the splits."""
    if set(splits) == {None}:
        return {"train": splits[None]}, []
    if _TRAIN not in splits and None in splits:
        splits = {_TRAIN if name is None else name: images for name, images in splits.items()}
    if _TRAIN not in splits:
        names = " and ".join(sorted(name for name in splits if name))
        message = (
            f"{folder} has images for {names} and none for training: name the folder to train on, "
            "or add a folder `train`"
        )
        raise InputError(message)
    chosen = {"train": splits[_TRAIN]}
    held_out: Split = _VALIDATION if _VALIDATION in splits else _TEST
    if held_out in splits:
        chosen["evaluation"] = splits[held_out]
        notes = [f"splits: {_TRAIN} is trained on, {held_out} is evaluated"]
    else:
        notes = [f"splits: {_TRAIN} is trained on, and there is none to evaluate"]
    for name, images in splits.items():
        if name not in {_TRAIN, held_out}:
            where = name or "neither train nor evaluation"
            notes.append(f"left out: {number_of('image', len(images))} of {where}")
    return chosen, notes


def _labels(folder: Path, texts: dict[Path, str]) -> list[str]:
    """Take labels of another task out of the texts, and return notes on them.

    Raises:
        InputError: most texts are labels, also where they are in a folder of their own.
    """
    kinds: dict[Path, str] = {}
    for file, text in texts.items():
        kind = label_kind(text)
        if kind is not None:
            kinds[file] = kind
    num_filled = sum(bool(text.strip()) for text in texts.values())
    if kinds and 2 * len(kinds) > num_filled:
        first, kind = next(iter(kinds.items()))
        line = texts[first].strip().splitlines()[0][:60]
        message = (
            f"{first}: `{line}` is {kind}, not words; so are "
            f"{len(kinds)} of {number_of('text file', len(texts))} in {folder}. Write captions "
            "instead, or name a manifest with the words of each image "
            "(docs/guides/data/manifests.md)"
        )
        raise InputError(message)
    notes = []
    for file in kinds:
        texts[file] = ""
    if kinds:
        notes.append(
            f"{number_of('text file', len(kinds))} of labels, not words ({named([*kinds])})"
        )
    return notes


def _number_notes(captions: Mapping[Path, str]) -> list[str]:
    numbers = [file for file, text in captions.items() if is_number(text)]
    if not numbers:
        return []
    number = number_of("caption", len(numbers))
    note = f"{number} of one number alone ({named(numbers)}), trained on as it is: if it is the "
    return [f"{note}index of a class, write its name"]


def _words_of(
    folder: Path,
    images: Sequence[Path],
    captions: Mapping[Path, list[Path]],
    texts: Mapping[Path, str],
    splits: Collection[Path],
) -> tuple[dict[Path, str | None], list[str]]:
    """Return the words of each image, None where there are none, and notes."""
    words: dict[Path, str | None] = {}
    if any(image in captions for image in images):
        words = {image: _caption(image, captions.get(image, ()), texts) for image in images}
        users = Counter(file for image in images for file in captions.get(image, ()))
        shared = sorted(file for file, count in users.items() if count > 1)
        number = number_of("caption", len(shared))
        note = f"{number} shared by images of one name, as the words of each ({named(shared)})"
        return words, [note] if shared else []
    classes: dict[Path, Path | None] = {}
    for parent in {image.parent for image in images}:
        above = itertools.takewhile(lambda path: path != folder, (parent, *parent.parents))
        own = (path for path in above if path not in splits)
        classes[parent] = next((p for p in own if p.name.lower() not in PLAIN_NAMES), None)
    if len({top for parent, top in classes.items() if top != parent} - {None}) == 1:
        classes = {parent: top if top == parent else None for parent, top in classes.items()}
    next_to_plain = {p.parent for p in classes if p.name.lower() in PLAIN_NAMES}
    no_class = {p.name for p in classes.values() if p and p.parent in next_to_plain}
    for image in images:
        top = classes[image.parent]  # the folder that names the class
        is_class = top is not None and top.parent not in next_to_plain
        words[image] = top.name.replace("_", " ") if top is not None and is_class else None
    if no_class:
        names = named([Path(name) for name in sorted(no_class)])
        return words, [f"the names of folders next to plain images are not used as texts: {names}"]
    return words, []


def _caption(image: Path, files: Sequence[Path], texts: Mapping[Path, str]) -> str | None:
    """Return the words of an image with their line breaks; None where there are none.

    Raises:
        InputError: two files say different things of it.
    """
    captions: dict[str, str] = {}  # those that differ in more than blanks and line breaks
    for file in files:
        words = " ".join(texts[file].split())
        if words:
            captions.setdefault(words, texts[file].strip())
    if len(captions) > 1:
        names = " and ".join(sorted(file.name for file in files))
        message = f"{image} has two captions that differ, {names}: keep one of them"
        raise InputError(message)
    return next(iter(captions.values()), None)


def _beginning(file: Path) -> str:
    """Return the beginning of a text that belongs to no image; empty if it cannot be read."""
    with suppress(OSError), open_regular(file) as stream:
        return stream.read(_LABEL_BYTES).decode(errors="replace")
    return ""


def _texts(files: Sequence[Path]) -> dict[Path, str]:
    """Return the content of caption files.

    Raises:
        InputError: one cannot be read or is too long, or some are not UTF-8.
    """
    texts: dict[Path, str] = {}
    others: list[Path] = []
    for file in files:
        try:
            texts[file] = _text(file)
        except UnicodeDecodeError:
            others.append(file)
    if others:
        number = number_of("text file", len(others))
        message = (
            f"{number} of {len(files):,} not in UTF-8 ({named(others)}); save them as UTF-8. If "
            f"they are in Latin-1, `iconv -f LATIN1 -t UTF-8 {shlex.quote(str(others[0]))}` "
            "prints the first as it should be"
        )
        raise InputError(message)
    return texts


def _text(file: Path) -> str:
    """Return the content of a caption file, with Unix line ends.

    Raises:
        InputError: it cannot be read, or is too long.
        UnicodeDecodeError: it is not UTF-8.
    """
    try:
        with open_regular(file) as stream:
            data = stream.read(_MOST_CAPTION_BYTES + 1)
        if len(data) > _MOST_CAPTION_BYTES:
            message = (
                f"{file} has over {_MOST_CAPTION_BYTES:,} bytes, which no model takes as the "
                "caption of an image: shorten it, or move it out of the folder"
            )
            raise InputError(message)
        text = data.decode("utf-8-sig")
    except OSError as error:
        message = f"{file}: {error.strerror}"
        raise InputError(message) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
