"""Formats of manifests that are text, and of files that are not manifests."""

from __future__ import annotations

import posixpath
import shlex

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
