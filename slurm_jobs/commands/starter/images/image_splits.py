"""Held-out images and annotations in a folder, by the names of folders and files. PURE."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.formats.manifests.splits import Split, split_and_rest, split_of

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
        if image in captioned:
            remaining.append(image)
            continue
        where = _drawn_in(parts_of[image], siblings)
        match = _DRAWN_FILE.fullmatch(image.stem) if where is None else None
        if match and (image.parent, match["of"]) in stems:
            where = f"*{image.stem.removeprefix(match['of'])}{image.suffix}"
        if where is None:
            remaining.append(image)
        else:
            left_out[where] += 1
    return remaining, [
        f"left out: {count:,} image{'' if count == 1 else 's'} in {where}: its name says "
        "annotations or thumbnails, not photos to describe"
        for where, count in sorted(left_out.items())
    ]


def _drawn_in(parts: Parts, siblings: dict[Parts, set[str]]) -> str | None:
    """Return the folder of annotations that an image is in; None if it is in none."""
    for depth, name in enumerate(parts):
        above = parts[:depth]
        if _holds_drawings(name, above, siblings[above] - {name}):
            return "/".join(parts[: depth + 1])
    return None


def _holds_drawings(name: str, above: Parts, others: set[str]) -> bool:
    """Check whether a folder holds annotations, by its name and those above and next to it."""
    match = _DRAWN.fullmatch(name)
    if match is None:
        return False
    word = match["word"].lower().rstrip("s")
    if above and word in above[-1].lower():
        return False
    similar = {other for other in others if word in other.lower()}
    if others and similar == others:  # `seg_train` next to `seg_test`
        return False
    return all(map(_DRAWN.fullmatch, similar))  # `mask` next to `no_mask` is a class


@dataclass(frozen=True, kw_only=True, slots=True)
class Splits:
    """Images by split; None is for images of no split."""

    images: dict[Split | None, list[Path]]
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
        is_in_split = _split_at(parent, splits) is not None
        splits |= _splits_in(parent, names_below, has_texts=has_texts and not is_in_split)
    if _leaves_images(splits, parts_of.values()):
        splits = {}
    notes = _unused_names(names_below, splits)
    if splits:
        by_split: dict[Split | None, list[Path]] = {}
        for image, parts in parts_of.items():
            by_split.setdefault(_split_at(parts, splits), []).append(image)
    else:
        by_split, more_notes = _by_files(images)
        notes += more_notes
    folders = frozenset(folder.joinpath(*parts) for parts in splits)
    return Splits(images=by_split, folders=folders, notes=tuple(notes))


def _leaves_images(splits: Mapping[Parts, Split], folders: Iterable[Parts]) -> bool:
    """Check for `train` without a held-out split, and images elsewhere.

    An example is `vehicles/train` next to `animals/cat`.
    """
    if set(splits.values()) != {"train"}:
        return False
    above = {split[:depth] for split in splits for depth in range(len(split))}
    parents = {split[:-1] for split in splits}
    for parts in folders:
        is_beside = any(parts[: len(parent)] == parent for parent in parents)
        if _split_at(parts, splits) is None and parts not in above and not is_beside:
            return True
    return False


def _unused_names(
    names_below: Mapping[Parts, set[str]], splits: Mapping[Parts, Split]
) -> list[str]:
    """Return a note on folders with the name of a split that are trained on all the same."""
    unused = []
    for parent, names in sorted(names_below.items()):
        for name in sorted(names):
            place = (*parent, name)
            split = _split_at(place, splits)
            named = split_and_rest(name)[0]
            if place not in splits and split in {None, "train"} and named not in {None, split}:
                unused.append("/".join(place))
    if not unused:
        return []
    more = f" and {len(unused) - _NUM_NAMED} more" if len(unused) > _NUM_NAMED else ""
    folders = f"{', '.join(unused[:_NUM_NAMED])}{more}"
    return [
        (
            f"not used as splits, despite their names: {folders}; "
            "if one is held out, name the folder to train on instead"
        )
    ]


def _names_below(folders: Iterable[Parts]) -> dict[Parts, set[str]]:
    """Return the names of the subfolders of each folder that is above others."""
    names: dict[Parts, set[str]] = {}
    for parts in set(folders):
        for depth, name in enumerate(parts):
            names.setdefault(parts[:depth], set()).add(name)
    return names


def _split_at(parts: Parts, splits: Mapping[Parts, Split]) -> Split | None:
    """Return the split of a folder or of one above it; a held-out one wins over `train`."""
    found: Split | None = None
    for depth in range(1, len(parts) + 1):
        split = splits.get(parts[:depth])
        if split is not None and split != "train":
            return split
        found = found or split
    return found


def _splits_in(
    parent: Parts, names_below: Mapping[Parts, set[str]], *, has_texts: bool
) -> dict[Parts, Split]:
    """Return the children of a folder that are splits."""
    kinds = _named_splits(names_below[parent])
    others = names_below[parent] - kinds.keys()
    num_held_out = sum(kind != "train" for kind in kinds.values())
    if not kinds:
        return {}
    is_mixed = 0 < num_held_out < len(kinds)
    if is_mixed or not others or _have_folders_in_common(parent, kinds, others, names_below):
        is_split = True
    elif num_held_out:
        is_split = has_texts or all(name.lower() in PLAIN_NAMES for name in others)
    else:
        is_split = all(name.lower() in _EXTRA for name in others)
    return {(*parent, name): kind for name, kind in kinds.items()} if is_split else {}


def _named_splits(names: Collection[str]) -> dict[str, Split]:
    """Return the names that stand for a split: alone, or in pairs such as `coco_train`, `coco_val`.

    Short words, as in `imagesTr` and `imagesTs`, count in pairs only.
    """
    kinds: dict[str, Split] = {}
    by_rest: dict[Parts, dict[str, Split]] = {}
    for name in names:
        alone = split_of(name)
        split, rest = split_and_rest(name, is_short=True)
        if alone is not None:
            kinds[name] = alone
        elif split is not None:
            by_rest.setdefault(rest, {})[name] = split
    for pair in by_rest.values():
        if len({split == "train" for split in pair.values()}) > 1:
            kinds |= pair
    return kinds


def _have_folders_in_common(
    parent: Parts,
    names: Collection[str],
    others: Collection[str],
    names_below: Mapping[Parts, set[str]],
) -> bool:
    """Check whether subfolders of splits, such as classes, are also in or next to other folders."""
    around = set(others)
    for other in others:
        around |= names_below.get((*parent, other), set())
    for name in names:
        for inner in names_below.get((*parent, name), ()):
            if inner in around and inner.lower() not in PLAIN_NAMES:
                return True
    return False


def _by_files(images: Sequence[Path]) -> tuple[dict[Split | None, list[Path]], list[str]]:
    """Sort by the names of files where each names a split (`train_1.jpg`); else note many."""
    by_split: dict[Split | None, list[Path]] = {}
    for image in images:
        by_split.setdefault(split_and_rest(image.stem)[0], []).append(image)
    named = sum(len(files) for split, files in by_split.items() if split)
    has_held = bool(by_split.keys() - {None, "train"})
    if named == len(images) and "train" in by_split and has_held:
        return by_split, []
    notes = []
    if has_held and named > max(1, _MANY * len(images)):
        held_out = (files for split, files in by_split.items() if split not in {None, "train"})
        example = next(held_out)[0]
        notes.append(
            f"{named:,} of {len(images):,} file names contain the name of a split "
            f"({example.name}), and all images are trained on; to hold some out, "
            "move them into a folder `val`"
        )
    return {None: list(images)}, notes
