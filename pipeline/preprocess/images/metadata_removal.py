"""Image files without metadata, so that broken metadata does not reject a whole image.

Text, ICC profiles, EXIF, XMP, thumbnails and further images are removed from the file's
structure; nothing is decoded. The orientation (from EXIF or XMP) stays if it is intact. A file
whose structure is not understood is returned unchanged: its decoder reports the problem.
"""

from __future__ import annotations

import struct
import zlib

from slurm_jobs.formats.file_signatures import PNG_SIGNATURE, TIFF_STARTS

_TURNING_TEXTS = (b"Raw profile type exif", b"XML:com.adobe.xmp")
"""Keywords of PNG texts that may state an orientation."""
_MAX_TEXT_BYTES = 1 << 20
"""Limit of such a text, unpacked; Pillow's own limit."""
MAX_PARTS = 4096
"""Limit of parts of a file between which metadata is removed: far above what any writer
produces, and a bound on memory."""
_MAX_TAG_VALUES = 1_000_000
"""Limit of the values of a TIFF's tag: Pillow makes a Python number of each."""
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
_TIFF_TAGS = frozenset(
    {
        *(254, 255, 256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 284, 292, 293),
        *(317, 320, 322, 323, 324, 325, 332, 334, 338, 339, 347),
        *(512, 513, 514, 515, 517, 518, 519, 520, 521, 529, 530, 531, 532, 50674),
    }
)
"""Tags that determine the pixels, and the orientation (274)."""
_JPEG_KEPT = frozenset({0xE0, 0xEE})
"""JFIF and Adobe segments: they define the channels."""
_WEBP_KEPT = frozenset({b"VP8X", b"ALPH", b"VP8 ", b"VP8L", b"ANIM", b"ANMF", b"EXIF", b"XMP "})


class HostileImageError(ValueError):
    """A part of the file that no writer makes, and that would take memory out of proportion."""


def without_metadata(data: bytes) -> bytes:
    """Return the file with only its pixels and orientation; `data` itself if nothing changes."""
    try:
        if data.startswith(PNG_SIGNATURE):
            return _strip_png(data)
        if data.startswith(TIFF_STARTS):
            return _strip_tiff(data)
        if data.startswith(b"\xff\xd8"):
            return _strip_jpeg(data)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _strip_webp(data)
        if data[4:8] == b"ftyp":
            return _strip_avif(data)
    except (struct.error, IndexError, OverflowError):  # truncated
        pass
    return data


def _strip_png(data: bytes) -> bytes:
    view = memoryview(data)
    header: dict[bytes, memoryview] = {}
    turning: dict[bytes, bytes] = {}
    first, last = 0, 0  # pixel chunks, which are consecutive
    is_plain = True
    end, kind = len(PNG_SIGNATURE), b""
    while end + 8 <= len(data) and kind != b"IEND":
        start = end
        length, kind = struct.unpack_from(">I4s", data, start)
        end = min(start + 12 + length, len(data))
        if not kind.isalpha() or (kind == b"IDAT" and first and last != start):
            break
        if kind == b"IDAT":
            first, last = first or start, end
        elif kind[0] & 0x20 and kind != b"tRNS":  # ancillary
            is_plain = False
            keyword = _turning_keyword(kind, data, start, end)
            if keyword:
                turning[keyword] = data[start:end]
        elif kind != b"IEND":
            header.setdefault(kind, view[start:end])
    if is_plain or not first or len(header) > MAX_PARTS:
        return data
    parts: tuple[bytes | memoryview, ...]
    parts = (PNG_SIGNATURE, *header.values(), *turning.values(), view[first:last], _PNG_END)
    return b"".join(parts)


def _turning_keyword(kind: bytes, data: bytes, start: int, end: int) -> bytes | None:
    """Return the keyword under which a complete chunk may state an orientation; else None."""
    if kind not in (b"eXIf", b"tEXt", b"zTXt", b"iTXt") or end - start > _MAX_TEXT_BYTES:
        return None
    if zlib.crc32(data[start + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
        return None
    if kind == b"eXIf":
        return kind
    keyword, _, rest = data[start + 8 : end - 4].partition(b"\0")
    if keyword not in _TURNING_TEXTS:
        return None
    packed = rest[1:] if kind == b"zTXt" else b""
    if kind == b"iTXt" and rest[:1] == b"\1":
        packed = rest[2:].split(b"\0", 2)[-1]
    unpacker = zlib.decompressobj()
    try:
        unpacker.decompress(packed, _MAX_TEXT_BYTES)
    except zlib.error:
        return None
    return None if unpacker.unconsumed_tail else keyword


def _strip_tiff(data: bytes) -> bytes:
    """Keep the tags of the first page that determine the pixels, and no other page."""
    order = "<" if data[:2] == b"II" else ">"
    is_big = 43 in data[2:4]
    count_format, entry_size, offset_format = ("Q", 20, "Q") if is_big else ("H", 12, "I")
    (start,) = struct.unpack_from(order + offset_format, data, 8 if is_big else 4)
    (count,) = struct.unpack_from(order + count_format, data, start)
    first = start + struct.calcsize("=" + count_format)
    end = first + count * entry_size
    (next_page,) = struct.unpack_from(order + offset_format, data, end)
    if count > MAX_PARTS:
        return data
    entries = [data[at : at + entry_size] for at in range(first, end, entry_size)]
    kept = [e for e in entries if struct.unpack_from(order + "H", e)[0] in _TIFF_TAGS]
    if any(struct.unpack_from(order + offset_format, e, 4)[0] > _MAX_TAG_VALUES for e in kept):
        message = f"a tag of more than {_MAX_TAG_VALUES:,} values, of strips or tiles"
        raise HostileImageError(message)
    if len(kept) == count and not next_page:
        return data
    directory = struct.pack(order + count_format, len(kept)) + b"".join(kept)
    directory += bytes(struct.calcsize("=" + offset_format))  # no next page
    view = memoryview(data)
    return b"".join((view[:start], directory, view[start + len(directory) :]))


def _strip_jpeg(data: bytes) -> bytes:
    view = memoryview(data)
    kept: list[bytes | memoryview] = [view[:2]]
    at = 2
    while data[at] == 0xFF and len(kept) < MAX_PARTS:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if marker == 0xDA:  # the scan: the rest is pixels
            kept.append(view[at:])
            return b"".join(kept)
        end = at + 2 + struct.unpack_from(">H", data, at + 2)[0]
        is_comment = 0xE0 <= marker <= 0xEF or marker == 0xFE
        is_exif = marker == 0xE1 and data.startswith(b"Exif\0", at + 4)
        if not is_comment or is_exif or marker in _JPEG_KEPT:
            kept.append(view[at:end])
        at = end
    return data


def _strip_webp(data: bytes) -> bytes:
    """Keep complete chunks and the first frame of an animation, and update the size."""
    view = memoryview(data)
    kept: list[bytes | memoryview] = []
    num_frames = 0
    at = 12
    while at + 8 <= len(data) and len(kept) < MAX_PARTS:
        kind, length = struct.unpack_from("<4sI", data, at)
        end = at + 8 + length + length % 2
        num_frames += kind == b"ANMF"
        is_whole = at + 8 + length <= len(data)
        if kind in _WEBP_KEPT and is_whole and (kind != b"ANMF" or num_frames == 1):
            kept.append(view[at:end])
            if end > len(data):
                kept.append(b"\0")
        at = end
    size = 4 + sum(map(len, kept))
    return b"".join((b"RIFF", struct.pack("<I", size), b"WEBP", *kept))


def _strip_avif(data: bytes) -> bytes:
    """Rename the EXIF item, so that it is skipped; the file itself states the orientation."""
    at = 0
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"meta":
            meta = data[at : at + size].replace(b"Exif", b"exif")
            return b"".join((data[:at], meta, data[at + size :]))
        if size < 8:
            return data
        at += size
    return data
