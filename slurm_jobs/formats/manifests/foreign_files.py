"""Files that no reader of manifests reads: what they are, and what to do."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping

from slurm_jobs.formats.file_signatures import Group, signature_of

UNKNOWN_FORMAT = (
    "neither a `.csv` file, nor JSON lines (first character `{`), nor a JSON list (`[`), nor "
    "Parquet"
)
_UNPACKED_BY = {
    "gzip": "gunzip -k",
    "bzip2": "bunzip2 -k",
    "xz": "unxz -k",
    "zstd": "unzstd",
    "lz4": "unlz4",
    "zip": "unzip",
    "7-Zip": "7z x",
    "RAR": "unrar x",
}
_SHEETS = (".xlsx", ".xlsm", ".ods", ".xls")
_TEXTS: Mapping[Group, str] = {
    "image": "a picture; a manifest lists pictures and their texts",
    "table": "a file of the format {}; write its rows as Parquet or JSON lines",
    "array": "a file of the format {}; write its rows as Parquet or JSON lines",
    "pointer": "a pointer of {}; fetch the file with `git lfs pull`",
}
"""Other groups are ignored, because a text may begin with their signatures."""
_RECORD_MARK = b"\x1e"


def foreign_format(name: str, head: bytes) -> str | None:
    """Describe a file that no reader of manifests reads, with the remedy; empty for others.

    `head` is its first `HEAD_BYTES`.
    """
    stem, suffix = posixpath.splitext(name)
    if head.startswith(_RECORD_MARK):
        # Another name: a shell empties the file of `>` before it reads that of `<`.
        plain = shlex.quote(f"{stem}.lines.jsonl")
        return (
            "a JSON text sequence (RFC 7464), in which the character 0x1e begins each row; write "
            f"it as JSON lines: `tr -d '\\036' < {shlex.quote(name)} > {plain}`"
        )
    signature = signature_of(head)
    if signature is None:
        return None
    command = _UNPACKED_BY.get(signature.name)
    if suffix.lower() in _SHEETS and (command or signature.name == "Excel"):
        return f"a spreadsheet ({suffix}); save it as CSV in UTF-8"
    if command and suffix.lower() in {".npz", ".pt", ".pth"}:
        return "arrays, not rows; write the rows as Parquet or JSON lines"
    if command:
        unpack = f"{command} {shlex.quote(name)}"
        return f"packed with {signature.name}, which is not read; unpack it first: `{unpack}`"
    return _TEXTS.get(signature.group, "").format(signature.name)


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
