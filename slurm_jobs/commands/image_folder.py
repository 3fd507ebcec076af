"""Converter of a folder of images into rows of image and text: captions in files, or classes.

Everything in the folder is either used or counted and named: images that cannot be opened, captions
without an image, label files of other tasks, and the splits that are not trained on.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from slurm_jobs.shared.errors import InputError
from slurm_jobs.shared.manifests.keys import Split, split_and_rest, split_of

# Held-out images and annotations in a folder, by the names of folders and files.


_PLAIN = (
    "images image imgs img photos photo pictures picture pics pic data dataset jpegimages jpegs "
    "jpeg jpg png files raw all unlabeled unlabelled"
)
PLAIN_NAMES = frozenset(_PLAIN.split())
"""Folder names that say nothing about the content of an image."""
_EXTRA = frozenset({"extra", "extras", "additional", "unlabeled", "unlabelled", "unsup"})
"""Folder names next to `train` that are not classes."""

_DRAWN = re.compile(
    r"(?:(?:train|training|val|valid|validation|test|testing|images?|imgs?|png|jpg|semantic|instance"
    r"|panoptic|object|class|fine|coarse|train(?:ing)?ids?|\d)[-_. ]*|[a-z][-_. ]+)*"
    r"(?P<word>masks?|annotations?|anns|labels?|segmentations?|segs?|gts?|ground[-_ ]?truths?"
    r"|depths?|normals|thumbnails?|thumbs?|trimaps?|mattes?|heatmaps?|disparity|disparities|overlays?)"
    r"(?:[-_. ]*(?:train|training|val|valid|validation|test|testing|images?|imgs?|png|jpg|semantic"
    r"|instance|object|class|fine|coarse|maps?|files?|data|tr|ts|\d)|[-_. ]+[a-z](?![a-z]))*",
    re.IGNORECASE,
)
"""`masks`, `train_masks`, `gtFine`, `SegmentationClass`, `label_2`."""
_DRAWN_FILE = re.compile(
    r"(?P<of>.+)[-_.](?:masks?|labels?|seg(?:mentation)?|gt(?:fine|coarse)?|ground[-_]?truth|depth"
    r"|normals?|thumb(?:nail)?|trimap|annotations?)(?:[-_.]?\d+)?",
    re.IGNORECASE,
)
"""`a_mask.png` next to `a.jpg`."""
_NUM_NAMED = 5
_MANY = 0.05
"""Share of images from which on a split name in the file names is reported."""

Parts = tuple[str, ...]


def without_drawings(
    folder: Path, images: Sequence[Path], captioned: Collection[Path]
) -> tuple[list[Path], list[str]]:
    """Return the images without masks, depth maps, thumbnails and similar files, and notes.

    All are below `folder`. Those in `captioned`, with a text next to them, are kept in any case.
    """
    parts_of = {image: image.relative_to(folder).parts[:-1] for image in images}
    siblings = _names_below(parts_of.values())
    stems = {(image.parent, image.stem) for image in images}
    remaining: list[Path] = []
    left_out: Counter[str] = Counter()
    for image in images:
        where = "" if image in captioned else _drawn_in(parts_of[image], siblings)
        match = None if image in captioned or where else _DRAWN_FILE.fullmatch(image.stem)
        if match and (image.parent, match["of"]) in stems:
            where = f"*{image.stem.removeprefix(match['of'])}{image.suffix}"
        if where:
            left_out[where] += 1
        else:
            remaining.append(image)
    return remaining, [
        f"left out: {count:,} image{'' if count == 1 else 's'} in {where}: its name says "
        "annotations or thumbnails, not photos to describe"
        for where, count in sorted(left_out.items())
    ]


def _drawn_in(parts: Parts, siblings: dict[Parts, set[str]]) -> str:
    """Return the folder of annotations that an image is in; `mask` next to `no_mask` is a class."""
    for depth, name in enumerate(parts):
        match = _DRAWN.fullmatch(name)
        if match:
            word = match["word"].lower().rstrip("s")
            others = siblings[parts[:depth]] - {name}
            named = {other for other in others if word in other.lower()}
            is_common = bool(others) and named == others  # `seg_train` next to `seg_test`
            is_inner = depth > 0 and word in parts[depth - 1].lower()
            if not is_common and not is_inner and all(map(_DRAWN.fullmatch, named)):
                return "/".join(parts[: depth + 1])
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Splits:
    """Images by split; "" is for images of no split."""

    images: dict[str, list[Path]]
    folders: frozenset[Path]
    """Folders that are a split."""
    notes: tuple[str, ...]
    """Messages about split names that were not used as one."""


def split_images(folder: Path, images: Sequence[Path], *, has_texts: bool) -> Splits:
    """Sort images into splits, by folders of any level, else by the names of files.

    A class may be called `train` or `test`: folders of such names are splits next to each other,
    without siblings, next to folders that say nothing (`images`), or where their subfolders are
    those of their neighbours. A held-out folder wins over `train` above it. With `has_texts`,
    captions are in files, and folders are not classes.
    """
    parts_of = {image: image.relative_to(folder).parts[:-1] for image in images}
    names_below = _names_below(parts_of.values())
    splits: dict[Parts, Split] = {}
    for parent in sorted(names_below, key=len):
        is_below = any(parent[:depth] in splits for depth in range(1, len(parent) + 1))
        splits.update(_splits_in(parent, names_below, has_texts=has_texts and not is_below))
    by_split: dict[str, list[Path]] = {}
    for image, parts in parts_of.items():
        by_split.setdefault(_split_at(parts, splits), []).append(image)
    if set(splits.values()) == {"train"}:
        above = {parts[:depth] for parts in splits for depth in range(len(parts))}
        siblings = {parts[:-1] for parts in splits}
        if any(
            parts_of[image] not in above
            and not any(parts_of[image][: len(s)] == s for s in siblings)
            for image in by_split.get("", ())
        ):  # `vehicles/train` next to `animals/cat`
            splits = {}
    notes: list[str] = []
    if not splits:
        by_split, notes = _by_files(images)
    unused = [  # folders with the name of a split that are trained on all the same
        "/".join((*parent, name))
        for parent, names in sorted(names_below.items())
        for name in sorted(names)
        if (*parent, name) not in splits
        and (above_it := _split_at((*parent, name), splits)) in {"", "train"}
        and (split_and_rest(name)[0] or above_it) != above_it
    ]
    if unused:
        more = f" and {len(unused) - _NUM_NAMED} more" if len(unused) > _NUM_NAMED else ""
        notes.insert(
            0,
            f"not used as splits, despite their names: {', '.join(unused[:_NUM_NAMED])}{more}; "
            "if one is held out, name the folder to train on instead",
        )
    folders = frozenset(folder.joinpath(*parts) for parts in splits)
    return Splits(images=by_split, folders=folders, notes=tuple(notes))


def _names_below(folders: Iterable[Parts]) -> dict[Parts, set[str]]:
    """Return the names of the subfolders of each folder that is above others."""
    names: dict[Parts, set[str]] = {}
    for parts in set(folders):
        for depth, name in enumerate(parts):
            names.setdefault(parts[:depth], set()).add(name)
    return names


def _split_at(parts: Parts, splits: dict[Parts, Split]) -> Split | str:
    above = [splits[parts[:d]] for d in range(1, len(parts) + 1) if parts[:d] in splits]
    return next((split for split in above if split != "train"), above[0] if above else "")


def _splits_in(
    parent: Parts, names_below: Mapping[Parts, set[str]], *, has_texts: bool
) -> dict[Parts, Split]:
    """Return the children of a folder that are splits."""
    names = names_below[parent]
    kinds: dict[str, Split] = {name: kind for name in names if (kind := split_of(name))}
    by_rest: dict[Parts, dict[str, Split]] = {}  # `coco_train` and `coco_val`, or `imagesTr`
    for name in names - kinds.keys():
        split, rest = split_and_rest(name, is_short=True)
        if split:
            by_rest.setdefault(rest, {})[name] = split
    for pair in by_rest.values():
        if len({split == "train" for split in pair.values()}) > 1:
            kinds |= pair
    others = names - kinds.keys()
    held_out = {name for name, kind in kinds.items() if kind != "train"}
    is_pair = len(held_out) not in {0, len(kinds)}
    shared = {inner for name in kinds for inner in names_below.get((*parent, name), ())}
    shared = {inner for inner in shared if inner.lower() not in PLAIN_NAMES}
    around = set(others).union(*(names_below.get((*parent, name), ()) for name in others))
    is_split = bool(kinds) and (is_pair or not others or bool(shared & around))
    if kinds and not held_out:
        is_split = is_split or all(name.lower() in _EXTRA for name in others)
    elif kinds:
        is_plain = all(name.lower() in PLAIN_NAMES for name in others)
        is_split = is_split or is_plain or has_texts
    return {(*parent, name): kind for name, kind in kinds.items()} if is_split else {}


def _by_files(images: Sequence[Path]) -> tuple[dict[str, list[Path]], list[str]]:
    """Sort by the names of files where each names a split (`train_1.jpg`); else note many."""
    by_split: dict[str, list[Path]] = {}
    for image in images:
        by_split.setdefault(split_and_rest(image.stem)[0] or "", []).append(image)
    named = sum(len(files) for split, files in by_split.items() if split)
    has_held = bool(by_split.keys() - {"", "train"})
    if named == len(images) and "train" in by_split and has_held:
        return by_split, []
    notes = []
    if has_held and named > max(1, _MANY * len(images)):
        example = next(files[0] for split, files in by_split.items() if split not in {"", "train"})
        notes.append(
            f"{named:,} of {len(images):,} file names contain the name of a split "
            f"({example.name}), and all images are trained on; to hold some out, "
            "move them into a folder `val`"
        )
    return {"": list(images)}, notes


# Detection of text files with labels of another task (boxes, keypoints).


_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_BETWEEN = re.compile(r"[\s,;|]+")
_HEADER = re.compile(r"\s*(?:imagesource|gsd)\s*:", re.IGNORECASE)
"""First lines of a DOTA file."""
_FEWEST = 4
"""Number of values of a box."""


def label_kind(text: str) -> str:
    """Return the kind of labels in a text, for a message; empty if it may be a caption.

    YOLO, KITTI, DOTA and ICDAR are known by their numbers: most lines have at least four, which
    are at least half of what the line says, or begin it.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    rows = [_BETWEEN.split(line.strip().strip(",;|")) for line in lines if not _HEADER.match(line)]
    if not rows:
        return "a DOTA label (corners and class)" if lines else ""
    if 2 * sum(_is_yolo(row) for row in rows) > len(rows):
        return "a YOLO label (class and box)"
    is_grid = len(rows) > 1 and {len(row) for row in rows} == {len(rows[0])}
    if 2 * sum(_is_box(row, is_grid=is_grid) for row in rows) > len(rows):
        return "a label (numbers of a box or of points)"
    return ""


def is_number(text: str) -> bool:
    """Check whether a text is one number: the index of a class, or a digit in words."""
    return _NUMBER.fullmatch(text.strip()) is not None


def _is_yolo(row: list[str]) -> bool:
    """Check for a class and coordinates from 0 to 1, as `0 0.5 0.5 0.2 0.3`."""
    coordinates = row[1:]
    if len(row) <= 2 or not all(map(_NUMBER.fullmatch, row)) or not row[0].isdecimal():
        return False
    is_fraction = any("." in value or "e" in value.lower() for value in coordinates)
    return is_fraction and all(0 <= float(value) <= 1 for value in coordinates)


def _is_box(row: list[str], *, is_grid: bool) -> bool:
    """Check for numbers of a box, with a class or a text.

    `is_grid`: all lines have as many fields. Whole numbers alone in one line are words, as in a
    picture of `1 2 3 4 5`.
    """
    are_numbers = [_NUMBER.fullmatch(value) is not None for value in row]
    count = sum(are_numbers)
    if count == len(row):
        has_fractions = sum("." in value for value in row) >= 2
        return count >= _FEWEST and (has_fractions or is_grid)
    return count >= _FEWEST and (2 * count >= len(row) or all(are_numbers[: 2 * _FEWEST]))


_JPEG = ".jpg .jpeg .jpe .jfif .jif .jfi .pjpeg .mpo"
_JPEG_2000 = ".jp2 .j2k .j2c .jpc .jpf .jpx"
_OTHERS = (
    ".png .apng .webp .gif .bmp .dib .tif .tiff .avif .avifs .ico .ppm .pgm .pbm .pnm .pfm .qoi "
    ".psd .dds .sgi .rgb .rgba .bw .pcx .tga .icb .vda .vst"
)
IMAGE_SUFFIXES = frozenset(f"{_JPEG} {_JPEG_2000} {_OTHERS}".split())
"""Suffixes of formats that `preprocess` opens; a test compares them with its list."""

_RAW = ".raw .cr2 .cr3 .crw .nef .nrw .arw .sr2 .srf .dng .orf .rw2 .raf .pef .srw .x3f"
_UNOPENED: Mapping[str, str] = {
    ".heic .heif .hif": "convert to JPEG, as `heif-convert` does",
    _RAW: "convert to JPEG by the raw converter of the camera",
    ".svg .svgz .eps .ps .ai .pdf .wmf .emf": "render as PNG",
    ".jxl .jxr .psb .xcf .exr .hdr .icns .cur .xpm .xbm": "convert to PNG",
    ".fits .fit .dcm .nii .npy .h5 .hdf5": "store as PNG",
    ".mp4 .mov .avi .mkv .webm .m4v .mpg .mpeg .wmv .flv": "store frames as JPEG",
    ".zip .tar .gz .tgz .7z .rar .bz2 .xz .zst": "unpack, or list members in a manifest",
}
_REMEDIES = {suffix: remedy for words, remedy in _UNOPENED.items() for suffix in words.split()}
"""Image files that cannot be opened, and the advice for each."""

_TRAIN, _VALIDATION, _TEST = "train", "validation", "test"
_METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
"""Manifests of Hugging Face's ImageFolder."""
_CAPTION_SUFFIXES = (".txt", ".caption")
_LIST_SUFFIXES = frozenset({".json", ".jsonl", ".csv", ".tsv", ".xml", ".parquet"})
_MOST_NAMED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Images of one split with their words."""

    files: tuple[Path, ...]
    words: tuple[str, ...]

    def manifest(self, root: Path) -> str:
        """Return the rows as CSV, with paths relative to `root`."""
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(("image_path", "text"))
        names = (file.relative_to(root).as_posix() for file in self.files)
        writer.writerows(zip(names, self.words, strict=True))
        return buffer.getvalue()


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFolder:
    """Training data found in a folder of images."""

    train: Rows
    evaluation: Rows | None
    """None where there is no split for it."""
    notes: tuple[str, ...]
    """Messages about choices and files that were left out."""


def has_images(folder: Path) -> bool:
    """Check whether there are files below a folder that are named as pictures are."""
    return any(file.suffix.lower() in {*IMAGE_SUFFIXES, *_REMEDIES} for file in _files(folder))


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
    `cat.jpg`). Where no image has one, they are the name of the folder that the image is in.
    Subfolders named train, val and test are splits: `train` is trained on, `val` evaluated. Masks
    and other pictures of annotations are left out.

    Raises:
        InputError: no image has words, words are labels of another task or contradict each other,
            or there are splits and none to train on.
    """
    files: dict[_Kind, list[Path]] = {kind: [] for kind in get_args(_Kind)}
    for file in _files(folder):
        files[_kind_of(file)].append(file)
    all_images, all_captions = sorted(files["image"]), files["caption"]
    refuse_unwritable([*all_images, *all_captions])
    by_stem: dict[Path, list[Path]] = {}
    for image in all_images:
        for stem in {image.with_suffix(""), image}:
            by_stem.setdefault(stem, []).append(image)
    captions: dict[Path, list[Path]] = {}  # of each image; without one the caption itself is key
    for caption in all_captions:
        for image in by_stem.get(caption.with_suffix(""), [caption]):
            captions.setdefault(image, []).append(caption)
    captioned = {image for image in all_images if image in captions}
    next_to = sorted({file for image in captioned for file in captions[image]})
    texts = {file: _text(file) for file in next_to or all_captions}
    labels = _labels(folder, texts)
    images, drawn = without_drawings(folder, all_images, captioned)
    splits = split_images(folder, images, has_texts=bool(captioned))
    chosen, notes = _choose(folder, splits.images)
    notes += [*splits.notes, *drawn, *labels]
    used = [image for images in chosen.values() for image in images]
    words, more = _words_of(folder, used, captions, texts, splits.folders)
    notes += more
    rows = {}
    for name, images in chosen.items():
        without = [image for image in images if not words[image]]
        if without:
            where = f" of {name}" if len(splits.images) > 1 else ""
            number = _number(len(without), "image")
            notes.append(f"left out: {number}{where} without words ({_named(without)})")
        labelled = [image for image in images if words[image]]
        rows[name] = Rows(files=tuple(labelled), words=tuple(words[image] for image in labelled))
    notes += _about_files(files, texts if next_to else {})
    if not rows["train"].files:
        details = "".join(f". {note}" for note in notes if "without words" not in note)
        message = f"{folder} has no image that can be opened{details}"
        if all_images:
            message = (
                f"{folder} has {_number(len(all_images), 'image')} and no words for them: put a "
                "text file next to each (cat.txt next to cat.jpg), sort them into folders named "
                "after what they show, or name a manifest (docs/manifests.md says what one looks "
                f"like){details}"
            )
        raise InputError(message)
    evaluation = rows.get("evaluation")
    return ImageFolder(
        train=rows["train"],
        evaluation=evaluation if evaluation is not None and evaluation.files else None,
        notes=tuple(notes),
    )


_Kind = Literal["image", "caption", "unopened", "list", "unknown"]


def _kind_of(file: Path) -> _Kind:
    """Return what the suffix of a file says: of sidecars and lists (JSON, XML, CSV) `list`."""
    suffix = file.suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        return "image"
    if suffix in _CAPTION_SUFFIXES:
        return "caption"
    if suffix in _REMEDIES:
        return "unopened"
    return "list" if suffix in _LIST_SUFFIXES else "unknown"


def _about_files(files: Mapping[_Kind, Sequence[Path]], texts: Mapping[Path, str]) -> list[str]:
    """Say what else is in the folder than the captions next to images, and why it is not read."""
    notes = []
    by_suffix: dict[str, list[Path]] = {}
    for file in files["unopened"]:
        by_suffix.setdefault(file.suffix.lower(), []).append(file)
    for suffix, group in sorted(by_suffix.items()):
        notes.append(
            f"left out: {_number(len(group), f'{suffix} file')}, not opened as images "
            f"({_named(group)}): {_REMEDIES[suffix]}"
        )
    alone = [file for file in files["caption"] if file not in texts]
    if alone:
        number = _number(len(alone), "text file")
        notes.append(f"left out: {number} without image ({_named(alone)})")
    empty = [file for file, text in texts.items() if not text.strip()]
    if empty:
        notes.append(f"{_number(len(empty), 'caption')} empty ({_named(empty)})")
    if unknown := files["unknown"]:
        suffixes = Counter(file.suffix or "no suffix" for file in unknown)
        kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in suffixes.most_common())
        notes.append(
            f"left out: {_number(len(unknown), 'file')} of other kinds: {kinds} "
            f"({_named(unknown)}); images and captions are recognised by their suffixes"
        )
    if lists := files["list"]:
        notes.append(
            f"not read: {_number(len(lists), 'file')} of lists or labels ({_named(lists)}); to "
            "use one, name it as the manifest (docs/manifests.md)"
        )
    return notes


def refuse_unwritable(files: Iterable[Path]) -> None:
    """Refuse names that are not UTF-8, because a manifest is UTF-8.

    Raises:
        InputError: there is such a name.
    """
    broken = next((f for f in files if any("\ud800" <= c <= "\udfff" for c in str(f))), None)
    if broken is not None:
        message = f"{str(broken)!a}: its name is not UTF-8, and no manifest can hold it; rename it"
        raise InputError(message)


def _files(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder, through links to folders too, each folder once.

    What begins with a dot is left out, as are the folders that archives of macOS add.
    """
    seen: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n != "__MACOSX")
        yield from (Path(here) / name for name in sorted(files) if not name.startswith("."))


def _choose(
    folder: Path, splits: Mapping[str, list[Path]]
) -> tuple[dict[str, list[Path]], list[str]]:
    """Return the images to train on and to evaluate, and notes on the splits."""
    if set(splits) == {""}:
        return {"train": splits[""]}, []
    if _TRAIN not in splits and "" in splits:
        splits = {_TRAIN if name == "" else name: images for name, images in splits.items()}
    if _TRAIN not in splits:
        names = " and ".join(sorted(name for name in splits if name))
        message = (
            f"{folder} has images for {names} and none for training: name the folder to train on, "
            "or add a folder `train`"
        )
        raise InputError(message)
    chosen = {"train": splits[_TRAIN]}
    held_out = _VALIDATION if _VALIDATION in splits else _TEST
    if held_out in splits:
        chosen["evaluation"] = splits[held_out]
        notes = [f"splits: {_TRAIN} is trained on, {held_out} is evaluated"]
    else:
        notes = [f"splits: {_TRAIN} is trained on, and there is none to evaluate"]
    for name, images in splits.items():
        if name not in {_TRAIN, held_out}:
            where = name or "neither train nor evaluation"
            notes.append(f"left out: {_number(len(images), 'image')} of {where}")
    return chosen, notes


def _labels(folder: Path, texts: dict[Path, str]) -> list[str]:
    """Take labels of another task out of the texts, and return notes on them.

    Raises:
        InputError: most texts are labels, also where they are in a folder of their own.
    """
    kinds = {file: kind for file, text in texts.items() if (kind := label_kind(text))}
    num_filled = sum(bool(text.strip()) for text in texts.values())
    if kinds and 2 * len(kinds) > num_filled:
        first, kind = next(iter(kinds.items()))
        line = texts[first].strip().splitlines()[0][:60]
        message = (
            f"{first}: `{line}` is {kind}, not words; so are "
            f"{len(kinds)} of {_number(len(texts), 'text file')} in {folder}. Write captions "
            "instead, or name a manifest with the words of each image (docs/manifests.md)"
        )
        raise InputError(message)
    notes = []
    for file in kinds:
        texts[file] = ""
    if kinds:
        notes.append(
            f"{_number(len(kinds), 'text file')} of labels, not words ({_named([*kinds])})"
        )
    numbers = [file for file, text in texts.items() if is_number(text)]
    if numbers:
        notes.append(
            f"{_number(len(numbers), 'caption')} of one number alone ({_named(numbers)}), trained "
            "on as it is: if it is the index of a class, write its name"
        )
    return notes


def _words_of(
    folder: Path,
    images: Sequence[Path],
    captions: Mapping[Path, list[Path]],
    texts: Mapping[Path, str],
    splits: Collection[Path],
) -> tuple[dict[Path, str], list[str]]:
    """Return the words of each image, and notes."""
    if any(image in captions for image in images):
        words = {image: _caption(image, captions.get(image, ()), texts) for image in images}
        users = Counter(file for image in images for file in captions.get(image, ()))
        shared = sorted(file for file, count in users.items() if count > 1)
        number = _number(len(shared), "caption")
        note = f"{number} shared by images of one name, as the words of each ({_named(shared)})"
        return words, [note] if shared else []
    classes: dict[Path, Path | None] = {}
    for parent in {image.parent for image in images}:
        above = itertools.takewhile(lambda path: path != folder, (parent, *parent.parents))
        named = (path for path in above if path not in splits)
        classes[parent] = next((p for p in named if p.name.lower() not in PLAIN_NAMES), None)
    if len({top for parent, top in classes.items() if top != parent} - {None}) == 1:
        classes = {parent: top if top == parent else None for parent, top in classes.items()}
    next_to_plain = {p.parent for p in classes if p.name.lower() in PLAIN_NAMES}
    no_class = sorted({p.name for p in classes.values() if p and p.parent in next_to_plain})
    words = {}
    for image in images:
        top = classes[image.parent]  # the folder that names the class
        is_class = top is not None and top.parent not in next_to_plain
        words[image] = top.name.replace("_", " ") if top is not None and is_class else ""
    if no_class:
        names = ", ".join(no_class[:_MOST_NAMED])
        return words, [f"the names of folders next to plain images are not used as texts: {names}"]
    return words, []


def _caption(image: Path, files: Sequence[Path], texts: Mapping[Path, str]) -> str:
    """Return the words of an image on one line; empty where there are none.

    Raises:
        InputError: two files say different things of it.
    """
    captions = {words for words in (" ".join(texts[file].split()) for file in files) if words}
    if len(captions) > 1:
        names = " and ".join(sorted(file.name for file in files))
        message = f"{image} has two captions that differ, {names}: keep one of them"
        raise InputError(message)
    return next(iter(captions), "")


def _text(file: Path) -> str:
    """Return the content of a caption file.

    Raises:
        InputError: it cannot be read, or is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{file}: not UTF-8 (byte {error.start}); save it as UTF-8"
        raise InputError(message) from error
    except OSError as error:
        message = f"{file}: {error.strerror}"
        raise InputError(message) from error


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _named(files: Sequence[Path]) -> str:
    more = len(files) - _MOST_NAMED
    names = ", ".join(file.name for file in files[:_MOST_NAMED])
    return names + (f" and {more:,} more" if more > 0 else "")
