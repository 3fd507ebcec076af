"""Names of formats, splits, models and files that specs and jobs share."""

from __future__ import annotations

import contextlib
import itertools
import json
import posixpath
import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from slurm_jobs.shared.manifests.messages import Content, ManifestRow
from slurm_jobs.shared.processors.image_plans import ImageRules, Size, UnfitImageError
from slurm_jobs.shared.regular_files import open_regular, read_bytes

# Names in the folder of a data set, which stages write and the login node reads.


INFO_NAME = "dataset.json"
"""File that `consolidate` writes last: with it, the data set is finished."""
INDEX_NAME = "index.arrow"
SHARDS_DIR = "shards"
PROCESSOR_DIR = "processor"


# Locations in which images of a manifest are allowed, for `check` and the reader.
#
# A manifest may come from a stranger and name private files of its reader. So images must be in or
# below folders that the user named. The check uses the written path with `..` resolved. Links in a
# folder are its owner's, and are followed, because caches of hubs consist of them.


_IN_ARCHIVE = re.compile(
    r"(.*?\.(?:tar|zip|tar\.\w+|tgz|tbz2?|txz|tzst))::(.*)", re.IGNORECASE | re.DOTALL
)

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_URL_END = re.compile(r"(?<=\.[A-Za-z]{3})[?#].*|(?<=\.[A-Za-z]{4})[?#].*", re.DOTALL)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2028-\u202e\u2060\ufeff\x00-\x1f\x7f]")
_NO_FILE_NAMES = (
    (
        re.compile(r"base64[,;:]"),
        "base64 without its media type: write `data:image/png;base64,...`",
    ),
    (re.compile(r"b['\"]|\\x[0-9a-f]{2}"), "bytes as Python prints them: write base64, or a path"),
    (
        re.compile(r"(?:0x)?(?:ffd8ff|89504e47|47494638|52494646)[0-9a-f]{10}"),
        "hexadecimal: write base64",
    ),
    (
        re.compile(r"ivborw0kggo|/9j/4|r0lgod|uklgr|aaaadgpq|qk[0-9a-z+/]{6}a{4}"),
        "base64 of a picture that is cut off or broken: write it whole, or a path",
    ),
    (re.compile(r"\[['\"]|<img "), "a list or a tag, not the name of one file: write paths alone"),
    (
        re.compile(r"[a-z]:[\\/](?!/)"),
        "a path of Windows: write the path from image_root, with `/`",
    ),
)
"""Beginnings of values that name no file, in lower case."""
_AROUND = " \t\r\n\"'\u00a0\ufeff"


def place_of(name: str, root: str) -> tuple[str, str | None]:
    """Return the file, or the archive and member, that an image's name refers to.

    Args:
        name: as in the manifest: `cats/1.jpg`, `photos.tar::cats/1.jpg`, or
            `file:///data/cats/1.jpg`.
        root: absolute folder that relative paths start from.

    Returns:
        The absolute path of the file or archive, without `..`; and the member, None for a file.
    """
    match = _IN_ARCHIVE.fullmatch(_without_file_scheme(name))
    file, member = (_without_file_scheme(name), None) if match is None else match.groups()
    return _plain(posixpath.join(root, file)), member


def is_within(path: str, folder: str) -> bool:
    """Check whether a path is in or below a folder; both absolute, from `place_of`."""
    return path.startswith(f"{_plain(folder).rstrip('/')}/")


def normal_forms(name: str) -> list[str]:
    """Return the same name in the other normal forms of Unicode: macOS writes NFD, others NFC."""
    forms = (unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    return [form for form in dict.fromkeys(forms) if form != name]


def strange_name(name: str) -> tuple[str, str]:
    """Describe what is strange about a name that no file has, and how to write it as a path.

    Returns:
        A description with the remedy, and the name that is probably meant; both empty if nothing is
            recognised. The second is empty if no file can be meant.
    """
    start = name.strip(_AROUND)[:20].lower()
    for beginning, words in _NO_FILE_NAMES:
        if beginning.match(start) or beginning.match(name[:20].lower()):
            return words, ""
    scheme = _SCHEME.match(start)
    if scheme and scheme[1] != "file":
        return f"{scheme[1]}:// is not fetched: download the files, and name their paths", ""
    if scheme and _without_file_scheme(name) == name:
        return "a file:// URL that names a machine: write the path from image_root", ""
    if start.startswith(("~", "$")):
        return f"`{start[0]}` is not expanded in a manifest: write the path from image_root", ""
    stripped = name.strip(_AROUND)
    spaced = re.sub("[\u00a0\u202f]", " ", stripped)
    meant = _INVISIBLE.sub("", spaced)
    kinds = {
        "blanks or quotes around it": stripped != name,
        "a no-break blank": spaced != stripped,
        "an invisible character or line break": meant != spaced,
        "backslashes": "\\" in meant,
        "codes of a URL (`%20`)": _PERCENT.search(meant) is not None,
        "the end of a URL (`?...`, `#...`)": _URL_END.search(meant) is not None,
    }
    seen = [kind for kind, is_seen in kinds.items() if is_seen]
    if not seen:
        return "", ""
    return f"it has {' and '.join(seen)}", unquote(_URL_END.sub("", meant)).replace("\\", "/")


ABSOLUTE_HINT = "the path is absolute; correct it, or write it relative to image_root"


def missing_hint(name: str, exists: Callable[[str], bool]) -> str:
    """Describe the strange or absolute name of a missing file; suggest a file that `exists`."""
    strange, meant = strange_name(name)
    if strange and not meant:
        return strange
    near = [meant] if strange else other_suffixes(name)
    there = next((other for other in near if exists(other)), None)
    if there is None and not strange:
        return ABSOLUTE_HINT if _without_file_scheme(name).startswith("/") else ""
    if there is None:
        return f"{strange}: write the plain path"
    return f"{f'{strange}; ' if strange else ''}write `{there}`, which is there"


def other_suffixes(name: str) -> list[str]:
    """Return the name with its suffix in other cases, and as `.jpg` for `.jpeg`."""
    stem, suffix = posixpath.splitext(name)
    if not suffix:
        return []
    twin = {".jpg": ".jpeg", ".jpeg": ".jpg"}.get(suffix.lower(), suffix)
    suffixes = (suffix.lower(), suffix.upper(), twin, twin.upper())
    return [stem + other for other in dict.fromkeys(suffixes) if other != suffix]


def _without_file_scheme(name: str) -> str:
    """Return the path of a `file:` URL; any other name unchanged."""
    if name[:5].lower() != "file:":
        return name
    match = re.match(r"(?i)file:(?://(?:localhost)?)?(/(?!/).*)", name, re.DOTALL)
    return name if match is None else unquote(match[1])


def _plain(path: str) -> str:
    path = posixpath.normpath(path)
    return path[1:] if path.startswith("//") else path  # POSIX keeps two slashes apart


# Models that can be trained, by their config.json, for `check` and the loader.
#
# Details of the families of whole models are in `pipeline.models.families`; this file has only
# their names.


MODEL_CONFIG = "config.json"

SMALL_VLM = "small_vlm"
"""`model_type` of the model that is built here, in the folder that a training exports."""

ImageKind = Literal["fixed", "tiled", "native"]
"""Storage of pictures. `fixed`: each became one array of one size. `tiled`: one or several of one
size. `native`: one, of its own size."""

TAKEN_IMAGES: Mapping[str, ImageKind] = {
    "idefics3": "tiled",
    "llava": "fixed",
    "llava_next": "tiled",
    "qwen2_5_vl": "native",
    "qwen2_vl": "native",
    "qwen3_vl": "native",
    "smolvlm": "tiled",
}
"""Kinds of images that a whole model takes, by `model_type`."""
SMALL_VLM_IMAGES: ImageKind = "fixed"
"""Kinds of images that a `small_vlm` takes."""

WHOLE_TYPES = tuple(TAKEN_IMAGES)
"""`model_type` of the image-text-to-text models of transformers that can be trained."""

MADE_IMAGES: Mapping[str, ImageKind] = {
    "CLIPImageProcessor": "fixed",
    "Idefics3ImageProcessor": "tiled",
    "LlavaImageProcessor": "fixed",
    "LlavaNextImageProcessor": "tiled",
    "Qwen2VLImageProcessor": "native",
    "SiglipImageProcessor": "fixed",
    "SmolVLMImageProcessor": "tiled",
    "ViTImageProcessor": "fixed",
}
"""Kind of images that a processor makes, by its class name in `image_processor_class`."""

_FLEXIBLE = (
    "; this is a SigLIP 2 of flexible resolution (NaFlex), which takes images in another layout"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartKind:
    """Requirements of a folder for one part of a `small_vlm`."""

    name: str
    """Name of the part in `model` of a training's config."""
    model_types: tuple[str, ...]
    words: str


VISION_PART = PartKind(
    name="vision",
    model_types=("siglip", "siglip_vision_model"),
    words="a SigLIP or fixed-resolution SigLIP 2 (model_type siglip or siglip_vision_model)",
)
LANGUAGE_PART = PartKind(
    name="language",
    model_types=("qwen2",),
    words="a Qwen2 or Qwen2.5 causal language model (model_type qwen2)",
)


def wrong_part(values: Mapping[str, Any], part: PartKind) -> str:
    """Return why a model with this config.json cannot be a part; empty if it can.

    Packed weights cannot be trained.
    """
    kind = values.get("model_type")
    if kind not in part.model_types:
        more = _FLEXIBLE if str(kind).startswith("siglip2") else ""
        return f"model_type is {kind!r}, expected {part.words}{more}"
    if values.get("quantization_config") is not None:
        return "its weights are quantised (quantization_config); take the plain model"
    return ""


def image_processor_class(images: Mapping[str, Any]) -> str:
    """Return the class name without the back end's `Fast` or `Pil`; older files use another key."""
    extractor = str(images.get("feature_extractor_type", ""))
    older = extractor.replace("FeatureExtractor", "ImageProcessor")
    name = str(images.get("image_processor_type") or older)
    return name.removesuffix("Fast").removesuffix("Pil")


# Sizes of the images of manifest rows, and the number of tokens that represent them.
#
# `check` and `init` measure some rows by the headers of their images, before anything is queued.


ImageSize = Callable[[Content], Size | None]
"""Function that returns width and height of an image of a row; None if they cannot be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSize:
    """Properties of a row that determine its length."""

    images: tuple[Size, ...]
    num_text_bytes: int


def spread(num_items: int, most: int) -> list[int]:
    """Return the indices of at most `most` items, spread evenly over all of them."""
    if num_items <= most:
        return list(range(num_items))
    return [number * num_items // most for number in range(most)]


def pick_rows(rows: Sequence[ManifestRow], most: int) -> list[ManifestRow]:
    """Return rows, spread evenly over the given ones, with about `most` images together."""
    num_images = sum(len(row.images) for row in rows)
    num_rows = len(rows) if num_images <= most else max(1, most * len(rows) // num_images)
    return [rows[place] for place in spread(len(rows), num_rows)]


def measure(row: ManifestRow, image_size: ImageSize, *, most: int) -> RowSize | None:
    """Return the size of a row; None if an image cannot be measured, or it has too many."""
    if len(row.images) > most:
        return None
    sizes = [image_size(image) for image in row.images]
    images = tuple(size for size in sizes if size is not None)
    if len(images) < len(sizes):
        return None
    num_text_bytes = sum(len(message.text.encode(errors="replace")) for message in row.messages)
    return RowSize(images=images, num_text_bytes=num_text_bytes)


def image_tokens(row: RowSize, rules: ImageRules) -> int:
    """Return how many tokens represent the images of a row; an unfit image counts none."""
    num_tokens = 0
    for size in row.images:
        with contextlib.suppress(UnfitImageError):
            num_tokens += sum(count for _, count in rules.plan(size).placeholder)
    return num_tokens


# Files of a manifest that is a table: Parquet, or a folder that `datasets` saved to disk.


PARQUET_MAGIC = b"PAR1"
ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"
"""First bytes of a stream of record batches; the file format of Arrow begins with `ARROW1`."""
_OF_SPLIT = re.compile(r"(.+?)-\d{4,}-of-\d{4,}\b.*\.parquet")
"""Names of the files of a split, as the Hub has them: `train-00000-of-00005.parquet`."""

_PICTURES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})


_MAX_ENTRIES, _MAX_FOLDERS = 1000, 10
"""Bounds of the search for pictures: a folder may hold millions of files."""
_LISTS = ("metadata.csv", "metadata.jsonl")
"""Manifests of Hugging Face's ImageFolder, next to the images."""


class NoTableError(ValueError):
    """Folder that is not a manifest; the message follows its path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFiles:
    """Files of a table, in the order of their rows."""

    kind: Literal["parquet", "arrow"]
    files: tuple[Path, ...]


def find_table(path: Path) -> TableFiles | None:
    """Return the table at `path`; None for a file that begins differently.

    Raises:
        NoTableError: a folder that is not a table, or more than one.
        OSError: it cannot be read.
    """
    if path.is_dir():
        is_saved = any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))
        return _saved_files(path) if is_saved else _parquet_files(path)
    with open_regular(path) as stream:
        head = stream.read(4)
    if head == PARQUET_MAGIC:
        return TableFiles(kind="parquet", files=(path,))
    if head == ARROW_STREAM_MAGIC:
        return TableFiles(kind="arrow", files=(path,))
    return None


def _saved_files(folder: Path) -> TableFiles:
    """Return the files that `save_to_disk` of `datasets` wrote."""
    if (folder / "dataset_dict.json").is_file():
        splits = _json(folder / "dataset_dict.json").get("splits") or []
        given = ", ".join(str(folder / str(split)) for split in splits)
        message = f" holds the splits of a data set; give the folder of one: {given or 'none'}"
        raise NoTableError(message)
    state = _json(folder / "state.json")
    if state.get("_indices_data_files"):
        message = " was saved with a selection of rows; call `flatten_indices()` and save it again"
        raise NoTableError(message)
    listed = state.get("_data_files") or []
    names = [item.get("filename") for item in listed if isinstance(item, dict)]
    files = tuple(folder / name for name in names if isinstance(name, str))
    missing = next((file.name for file in files if not file.is_file()), None)
    if missing is not None or not files:
        message = f": state.json lists {missing or 'no files'}, which does not exist; copy it again"
        raise NoTableError(message)
    return TableFiles(kind="arrow", files=files)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        message = f": {path.name} is not valid JSON ({error})"
        raise NoTableError(message) from error
    return value if isinstance(value, dict) else {}


def _parquet_files(folder: Path) -> TableFiles:
    files = sorted(
        path
        for path in folder.glob("*.parquet")
        if path.is_file() and not path.name.startswith((".", "_"))
    )
    splits = sorted({match[1] for path in files if (match := _OF_SPLIT.fullmatch(path.name))})
    if len(splits) > 1:
        message = (
            f" holds files of the splits {', '.join(splits)}; link or move those of one into a "
            f"folder of their own"
        )
        raise NoTableError(message)
    if files:
        return TableFiles(kind="parquet", files=tuple(files))
    message = (
        " is a folder without `*.parquet` files, and none that `save_to_disk` of `datasets` "
        "wrote (it has no state.json)"
    )
    listed = next((name for name in _LISTS if (folder / name).is_file()), None)
    entries = list(itertools.islice(folder.iterdir(), _MAX_ENTRIES))
    for path in [path for path in entries if path.is_dir()][:_MAX_FOLDERS]:
        with contextlib.suppress(OSError):  # `lost+found`
            entries += itertools.islice(path.iterdir(), _MAX_ENTRIES)
    if listed is not None:
        message += f"; {folder / listed} lists its images: name that file as the manifest"
    elif any(path.suffix.lower() in _PICTURES for path in entries):
        message += (
            "; it holds pictures: a manifest lists them with their texts, as CSV "
            "(`image_path,text`) or JSON lines; `slurm-jobs init --data "
            f"{shlex.quote(str(folder))}` writes one for pictures with a text each, or in a "
            "folder for each class"
        )
    raise NoTableError(message)


# First bytes of the formats of images that the job decodes.


IMAGE_HEAD_BYTES = 16
"""Number of bytes of a file that `begins_as_image` reads."""
_IMAGE_STARTS = (
    *(b"\xff\xd8", b"\x89PNG", b"GIF8", b"BM", b"qoif", b"8BPS", b"DDS ", b"\x01\xda"),
    *(b"II*", b"II+", b"II\0", b"MM*", b"MM\0"),  # TIFF
    *(b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  "),  # JPEG 2000
    b"\0\0\1\0",  # icon
    *(bytes((10, version)) for version in (0, 2, 3, 5)),  # PCX
    *(b"P" + kind.encode() for kind in "0123456fy"),  # PPM
    *(bytes((size, 0, 0, 0)) for size in (12, 40, 52, 56, 64, 108, 124)),  # DIB
)
_AVIF_BRANDS = (b"avif", b"avis", b"mif1", b"msf1")
_TGA_TYPES = (1, 2, 3, 9, 10, 11)


def begins_as_image(head: bytes) -> bool:
    """Check whether the first bytes of a file allow one of the formats that the job decodes."""
    is_webp = head.startswith(b"RIFF") and head[8:12] == b"WEBP"
    is_avif = head[4:8] == b"ftyp" and head[8:12] in _AVIF_BRANDS
    is_tga = head[1:2] in {b"\0", b"\1"} and head[2] in _TGA_TYPES if len(head) > 2 else False
    return head.startswith(_IMAGE_STARTS) or is_webp or is_avif or is_tga


# Formats of manifests that are text, and of files that are not manifests.


UNKNOWN_FORMAT = (
    "neither a `.csv` file, nor JSON lines (first character `{`), nor a JSON list (`[`), nor "
    "Parquet"
)
_COMPRESSED = (
    (b"\x1f\x8b", "gzip", "gunzip -k"),
    (b"BZh", "bzip2", "bunzip2 -k"),
    (b"\xfd7zXZ\0", "xz", "unxz -k"),
    (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"),
    (b"\x04\x22\x4d\x18", "lz4", "unlz4"),
    (b"PK\x03\x04", "zip", "unzip"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip", "7z x"),
)
_SHEETS = (".xlsx", ".xlsm", ".ods", ".xls")
_OTHERS = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a spreadsheet of Excel; save it as CSV in UTF-8"),
    (
        b"version https://git-lfs.",
        "a pointer of Git LFS; fetch the file with `git lfs pull`",
    ),
    (b"ARROW1", "an Arrow file (Feather); write it as Parquet"),
    (b"ORC", "an ORC file; write it as Parquet"),
    (b"Obj\x01", "an Avro file; write it as Parquet"),
    (b"SQLite format 3\0", "a database of SQLite; export its table as CSV"),
    (b"\x89HDF", "an HDF5 file; write its rows as Parquet or JSON lines"),
    (b"\x93NUMPY", "an array of NumPy; write its rows as Parquet or JSON lines"),
    (b"\xff\xd8\xff", "a picture; a manifest lists pictures and their texts"),
    (b"\x89PNG", "a picture; a manifest lists pictures and their texts"),
)
_RECORD_MARK = b"\x1e"
_OLD_TAR_MARK = slice(257, 262)
HEAD_BYTES = 512
"""Number of bytes of a file that `foreign_format` reads."""


def foreign_format(name: str, head: bytes) -> str:
    """Describe a file that no reader of manifests reads, with the remedy; empty for others.

    `head` is its first `HEAD_BYTES`.
    """
    suffix = posixpath.splitext(name)[1].lower()
    for magic, kind, command in _COMPRESSED:
        if head.startswith(magic):
            if suffix in _SHEETS:
                return f"a spreadsheet ({suffix}); save it as CSV in UTF-8"
            if suffix in {".npz", ".pt", ".pth"}:
                return "arrays, not rows; write the rows as Parquet or JSON lines"
            unpack = f"{command} {shlex.quote(name)}"
            return f"compressed with {kind}, which is not read; unpack it first: `{unpack}`"
    if head.startswith(_RECORD_MARK):
        # Another name: a shell empties the file of `>` before it reads that of `<`.
        plain = shlex.quote(f"{posixpath.splitext(name)[0]}.lines.jsonl")
        return (
            "a JSON text sequence (RFC 7464), in which the character 0x1e begins each row; write "
            f"it as JSON lines: `tr -d '\\036' < {shlex.quote(name)} > {plain}`"
        )
    if head[_OLD_TAR_MARK] == b"ustar":
        return "a tar archive; unpack it, and name the list of rows in it"
    return next((kind for magic, kind in _OTHERS if head.startswith(magic)), "")


def unknown_format(name: str, head: bytes) -> str:
    """Report that a text has no known format, and what it looks like."""
    line = head.decode("utf-8", "replace").lstrip().partition("\n")[0]
    suffix = posixpath.splitext(name)[1].lower()
    kind = ""
    if "\t" in line or (suffix == ".tsv" and "," not in line):
        kind = "it looks like tab-separated text: write it with commas, as a `.csv` file"
    elif line.lower().startswith(("<!doctype", "<html", "<?xml")):
        kind = "it is HTML or XML, perhaps the page of a failed download: fetch the file again"
    elif "," in line:
        kind = "it looks like CSV: give it a name that ends in `.csv`"
    return f"{UNKNOWN_FORMAT}{'; ' if kind else ''}{kind}"
