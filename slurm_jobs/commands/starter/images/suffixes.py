"""Kinds of files in a folder of images, by their suffixes. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Literal

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
    ".zip .tar .gz .tgz .7z .rar .bz2 .xz .zst": "unpack",
}
REMEDIES = {suffix: remedy for words, remedy in _UNOPENED.items() for suffix in words.split()}
"""Suffixes of image files that cannot be opened, and the advice for each."""

_CAPTIONS = frozenset({".txt", ".caption"})
_LISTS = frozenset({".json", ".jsonl", ".csv", ".tsv", ".xml", ".parquet"})

Kind = Literal["image", "caption", "unopened", "list", "unknown"]
"""Kind of a file: of sidecars and lists (JSON, XML, CSV) `list`."""


def kind_of(file: PurePath) -> Kind:
    """Return the kind of a file by its suffix."""
    suffix = file.suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        return "image"
    if suffix in _CAPTIONS:
        return "caption"
    if suffix in REMEDIES:
        return "unopened"
    return "list" if suffix in _LISTS else "unknown"
