"""Peak memory of `preprocess` over a manifest with bad images, in a process of its own.

    python -m tests.pipeline.preprocess.memory truncated --num-bad 1000 --num-rows 2000

Prints the peak of resident memory, before and after, and the rows a second.
"""

from __future__ import annotations

import argparse
import json
import struct
import tempfile
import time
import zlib
from pathlib import Path

from benchmarks.photographs import as_jpeg, make_photograph


def png_of_zeros(width: int, height: int) -> bytes:
    """A PNG with alpha that packs its pixels a thousand times."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    packer, row = zlib.compressobj(9), bytes(4 * width + 1)
    rows = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def nested_ico(width: int, height: int) -> bytes:
    """A Windows icon whose directory says 256 x 256, of a picture that says another size."""
    inner = png_of_zeros(width, height)
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, 0, 0, 0, 0, 1, 32, len(inner), 22) + inner


def nested_icns(width: int, height: int) -> bytes:
    """A macOS icon whose type says 256 x 256, of a picture that says another size."""
    inner = png_of_zeros(width, height)
    entry = b"ic08" + struct.pack(">I", len(inner) + 8) + inner
    return b"icns" + struct.pack(">I", len(entry) + 8) + entry


def write_manifest(folder: Path, kind: str, *, num_bad: int, num_rows: int) -> Path:
    """Rows of a whole picture of 12 megapixels, and among them bad ones; two image files."""
    whole = as_jpeg(make_photograph(0, 1000, 750).resize((4000, 3000)))
    bad = {
        "truncated": lambda: whole[: len(whole) // 2],
        "ico": lambda: nested_ico(10_400, 10_400),
        "icns": lambda: nested_icns(10_400, 10_400),
        "png": lambda: png_of_zeros(10_400, 10_400),
    }[kind]()
    folder.mkdir(parents=True)
    (folder / "whole.jpg").write_bytes(whole)
    (folder / "bad.jpg").write_bytes(bad)
    rows = []
    for number in range(num_rows):
        is_bad = (number + 1) * num_bad // num_rows > number * num_bad // num_rows
        image = "bad.jpg" if is_bad else "whole.jpg"
        rows.append({"images": [image], "messages": [
            {"role": "user", "content": "<image>What is it?"},
            {"role": "assistant", "content": "a picture"},
        ]})  # fmt: skip
    manifest = folder / "rows.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return manifest


def peak_mb() -> float:
    """The most memory that this process had, resident (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    """Preprocess, and print one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["truncated", "ico", "icns", "png"])
    parser.add_argument("--num-bad", type=int, default=1000)
    parser.add_argument("--num-rows", type=int, default=2000)
    asked = parser.parse_args()
    from pipeline.preprocess.stage import run
    from tests.pipeline.build import make_context, write_processor

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest = write_manifest(
            folder / "source", asked.kind, num_bad=asked.num_bad, num_rows=asked.num_rows
        )
        config = {
            "manifest": str(manifest),
            "processor": str(write_processor(folder / "processor")),
            "num_threads": 2,
            "max_reject_share": 1.0,
        }
        before, start = peak_mb(), time.perf_counter()
        result = run(config, make_context(folder))
        seconds = time.perf_counter() - start
    found = {
        "num_rows": result["num_rows"],
        "rejects_by_reason": result["rejects_by_reason"],
        "before_mb": round(before),
        "peak_mb": round(peak_mb()),
        "rows_per_s": round(asked.num_rows / seconds, 1),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
