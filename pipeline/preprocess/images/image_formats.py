"""Supported image formats, and descriptions of other files.

Pillow selects the decoder by a file's content, so this list limits what an untrusted file can
reach: `cat.jpg` may be PostScript. Supported are raster formats that Pillow decodes in this
process, whose header states the size and whose decoders were verified to respect it.

Not supported, of the formats of Pillow 12 and 13:

- EPS starts Ghostscript, WMF and EMF need Windows, IPTC opens any format inside itself;
- BUFR, GRIB, HDF5 and MPEG are names without a decoder; FITS unpacks gzip without a bound;
- ICNS and CUR are icons without use as training data, and Pillow loads ICNS at sizes that its
  header does not state;
- BLP, DCX, FLI, FTEX, GBR, IM, IMT, MCIDAS, MSP, PCD, PIXAR, SPIDER, SUN, XBM, XPM and XVTHUMB
  are rarely published today, and each is one more decoder that an untrusted file can reach.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from pipeline.preprocess.images.metadata_removal import MAX_PARTS
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.formats.file_signatures import Group, signature_of

FORMATS = (
    "JPEG",  # and MPO, a JPEG followed by further images
    "PNG",
    "WEBP",
    "GIF",
    "BMP",
    "DIB",
    "TIFF",
    "AVIF",
    "JPEG2000",
    "ICO",
    "PPM",
    "QOI",
    "PSD",
    "DDS",
    "SGI",
    "PCX",
    "TGA",  # last: it has no signature
)
"""Pillow's names, in the order in which they are tried."""
MAX_ICON_PIXELS = 1024 * 1024
"""Limit for an image in an .ico: Windows shows 256 x 256, and its directory cannot state more."""
MAX_JPEG_SCANS = 500
"""Limit for the scans of a JPEG, libjpeg-turbo's own for untrusted files: each scan may touch every
pixel, so a small file of some thousand scans takes hours. Encoders write about ten."""
CONVERT_REMEDY = "; convert it to PNG or JPEG"
_TAKE_FRAMES = "; name pictures of its frames"
_UNPACK = "; unpack it, and name the pictures in it"
_DOWNLOAD = ", probably from a failed download; download the picture again"
_REMEDIES: Mapping[Group, str] = {
    "picture": CONVERT_REMEDY,
    "video": _TAKE_FRAMES,
    "compressed": _UNPACK,
    "archive": _UNPACK,
    "array": "; store its pictures as PNG or JPEG",
    "pointer": ", not the picture; run `git lfs pull`",
    "base64": ", not the picture; decode it",
}
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
_MAX_TEXT = 4096
"""Bytes in which a text file must be recognisable."""


def describe_foreign(data: bytes) -> str | None:
    """Describe a file of another kind by its content, with the remedy; None if unknown."""
    signature = signature_of(data)
    if signature is not None and signature.group == "image":
        return None
    if signature is not None:
        return f"a file of the format {signature.name}{_REMEDIES.get(signature.group, '')}"
    if data[4:8] == b"ftyp":
        brands = {data[8:12], *(data[at : at + 4] for at in range(16, 64, 4))}
        if b"avif" in brands or b"avis" in brands:
            return None
        if brands & _HEIF_BRANDS:
            return f"a file of the format HEIC or HEIF{CONVERT_REMEDY}"
        return f"a file of the format MP4 or QuickTime{_TAKE_FRAMES}"
    if not any(data[:_MAX_TEXT]) and not any(data):
        return f"only zero bytes{_DOWNLOAD}"
    text = data[:_MAX_TEXT].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(b"%!ps"):
        return f"a file of the format EPS or PostScript{CONVERT_REMEDY}"
    if b"<svg" in text and text.startswith((b"<svg", b"<?xml", b"<!doctype svg", b"<!--")):
        return "an SVG drawing; convert it to PNG"
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body")) or b"<html" in text:
        return f"an HTML page{_DOWNLOAD}"
    if text.startswith((b"<?xml", b"<error>")):
        return f"an XML file{_DOWNLOAD}"
    if text.startswith((b"{", b"[")) and b'"' in text[:64]:
        return f"a JSON file{_DOWNLOAD}"
    return None


def check_icon(data: bytes, name: str) -> None:
    """Refuse an .ico with an oversized image: Pillow decodes it before it states its size."""
    if not data.startswith(b"\0\0\1\0"):
        return
    (num_pictures,) = struct.unpack_from("<H", data.ljust(6, b"\0"), 4)
    directory = data[6 : 6 + 16 * num_pictures]
    for *_, offset in struct.iter_unpack("<8sII", directory[: len(directory) // 16 * 16]):
        header = data[offset : offset + 24].ljust(24, b"\0")
        is_png = header.startswith(b"\x89PNG")
        width, height = struct.unpack_from(">II" if is_png else "<ii", header, 16 if is_png else 4)
        if not is_png:  # a bitmap, followed by a mask of the same height
            height = abs(height) // 2
        if abs(width) * height > MAX_ICON_PIXELS:
            message = (
                f"{name}: an icon with a picture of {abs(width)} x {height} pixels; icons are read "
                f"up to {MAX_ICON_PIXELS} pixels"
            )
            raise SampleRejectedError(reason="too_many_pixels", message=message)


def check_scans(data: bytes, name: str) -> None:
    """Refuse a JPEG with more scans than any encoder writes."""
    num_scans = data.count(b"\xff\xda") if data.startswith(b"\xff\xd8") else 0
    if num_scans > MAX_JPEG_SCANS:  # perhaps of what is appended to it, such as a video
        num_scans = _count_scans(data)
    if num_scans > MAX_JPEG_SCANS:
        message = f"{name}: a JPEG of over {MAX_JPEG_SCANS} scans takes too long; save it again"
        raise SampleRejectedError(reason="corrupt_image", message=message)


_JPEG_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")
"""Marker with a segment, or of the image's end: others are within the pixels of a scan."""


def _count_scans(data: bytes) -> int:
    """Count the scans up to the image's end, or to the limit, as libjpeg finds them."""
    num_scans = num_segments = at = 0
    while num_scans <= MAX_JPEG_SCANS and (marker := _JPEG_MARKER.search(data, at)):
        kind, at = marker[0][1], marker.end()
        if kind == 0xD9:
            break
        num_scans += kind == 0xDA
        num_segments += 1
        if num_segments > MAX_PARTS:
            return num_segments
        at += max(2, int.from_bytes(data[at : at + 2], "big"))
    return num_scans
