"""Images decoded and resized: formats, metadata, pixels."""

from __future__ import annotations

import io
import re
import struct
import warnings
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import simplejpeg
import torch
from PIL import ExifTags, Image, UnidentifiedImageError

from pipeline.preprocess.rejects import Reason, SampleRejectedError
from slurm_jobs.shared.configs.stages import ImageDecoding

# Supported image formats, and descriptions of other files.
#
# Pillow selects the decoder by a file's content, so this list limits what an untrusted file can
# reach: `cat.jpg` may be PostScript. Supported are raster formats that Pillow decodes in this
# process, whose header states the size and whose decoders were verified to respect it.
#
# Not supported, of the formats of Pillow 12 and 13:
#
# - EPS starts Ghostscript, WMF and EMF need Windows, IPTC opens any format inside itself;
# - BUFR, GRIB, HDF5 and MPEG are names without a decoder; FITS unpacks gzip without a bound;
# - ICNS and CUR are icons without use as training data, and Pillow loads ICNS at sizes that its
#   header does not state;
# - BLP, DCX, FLI, FTEX, GBR, IM, IMT, MCIDAS, MSP, PCD, PIXAR, SPIDER, SUN, XBM, XPM and XVTHUMB
#   are rarely published today, and each is one more decoder that an untrusted file can reach.


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

_CONVERT = "; convert it to PNG or JPEG"
_DOWNLOAD = ", probably from a failed download; download the picture again"
_UNPACK = "; unpack it, and name the pictures in it"
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%!PS", f"an EPS or PostScript file{_CONVERT}"),
    (0, b"\xc5\xd0\xd3\xc6", f"an EPS file{_CONVERT}"),
    (0, b"%PDF-", "a PDF file; convert its pages to PNG or JPEG"),
    (0, b"\xd7\xcd\xc6\x9a", f"a WMF file{_CONVERT}"),
    (40, b" EMF", f"an EMF file{_CONVERT}"),
    (0, b"\xff\x0a", f"a JPEG XL file{_CONVERT}"),
    (0, b"\0\0\0\x0cJXL ", f"a JPEG XL file{_CONVERT}"),
    (0, b"II\xbc", f"a JPEG XR file{_CONVERT}"),
    (0, b"Image type:", f"an IM file{_CONVERT}"),
    (2048, b"PCD_", f"a Photo CD file (PCD){_CONVERT}"),
    (0, b"/* XPM */", f"an XPM file{_CONVERT}"),
    (0, b"icns", f"a macOS icon (ICNS){_CONVERT}"),
    (0, b"\0\0\2\0", f"a Windows cursor (CUR){_CONVERT}"),
    (0, b"\x89HDF\r\n", "an HDF5 file; store its pictures as PNG or JPEG"),
    (0, b"\x93NUMPY", "a NumPy array; store it as PNG"),
    (0, b"GRIB", "a GRIB file of weather data"),
    (0, b"BUFR", "a BUFR file of weather data"),
    (0, b"SIMPLE  =", f"a FITS file{_CONVERT}"),
    (0, b"v/1\x01", f"an OpenEXR file{_CONVERT}"),
    (0, b"#?RADIANCE", f"a Radiance HDR file{_CONVERT}"),
    (128, b"DICM", f"a DICOM file{_CONVERT}"),
    (0, b"\x1a\x45\xdf\xa3", "a WebM or Matroska video; name pictures of its frames"),
    (0, b"\0\0\1\xba", "an MPEG video; name pictures of its frames"),
    (0, b"\0\0\1\xb3", "an MPEG video; name pictures of its frames"),
    (8, b"AVI ", "an AVI video; name pictures of its frames"),
    (8, b"WAVE", "a WAV sound"),
    (0, b"ID3", "an MP3 sound"),
    (0, b"OggS", "an Ogg sound or video"),
    (0, b"\x1f\x8b", f"a gzip file{_UNPACK}"),
    (0, b"PK\3\4", f"a zip file{_UNPACK}"),
    (0, b"BZh", f"a bzip2 file{_UNPACK}"),
    (0, b"\xfd7zXZ\0", f"an xz file{_UNPACK}"),
    (0, b"\x28\xb5\x2f\xfd", f"a zstd file{_UNPACK}"),
    (0, b"7z\xbc\xaf\x27\x1c", f"a 7z file{_UNPACK}"),
    (0, b"Rar!\x1a\x07", f"a RAR file{_UNPACK}"),
    (257, b"ustar", f"a tar file{_UNPACK}"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the picture; run `git lfs pull`"),
    (0, b"data:image/", "a data: URI, not the picture; decode its base64"),
    (0, b"/9j/", "base64 text of a JPEG, not the picture; decode it"),
    (0, b"iVBORw0KGgo", "base64 text of a PNG, not the picture; decode it"),
)
"""Offset, bytes, and description with the remedy."""

_HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
_MAX_TEXT = 4096
"""Bytes in which a text file must be recognisable."""


def _describe_foreign(data: bytes) -> str | None:
    """Describe a file of another kind by its content, with the remedy; None if unknown."""
    for offset, signature, what in _SIGNATURES:
        if data.startswith(signature, offset):
            return what
    if data[4:8] == b"ftyp":
        brands = {data[8:12], *(data[at : at + 4] for at in range(16, 64, 4))}
        if b"avif" in brands or b"avis" in brands:
            return None
        if brands & _HEIF_BRANDS:
            return f"a HEIC or HEIF file{_CONVERT}"
        return "an MP4 or QuickTime video; name pictures of its frames"
    if not any(data[:_MAX_TEXT]) and not any(data):
        return f"only zero bytes{_DOWNLOAD}"
    text = data[:_MAX_TEXT].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(b"%!ps"):
        return f"an EPS or PostScript file{_CONVERT}"
    if b"<svg" in text and text.startswith((b"<svg", b"<?xml", b"<!doctype svg", b"<!--")):
        return "an SVG drawing; convert it to PNG"
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body")) or b"<html" in text:
        return f"an HTML page{_DOWNLOAD}"
    if text.startswith((b"<?xml", b"<error>")):
        return f"an XML file{_DOWNLOAD}"
    if text.startswith((b"{", b"[")) and b'"' in text[:64]:
        return f"a JSON file{_DOWNLOAD}"
    return None


def _check_icon(data: bytes, name: str) -> None:
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


def _check_scans(data: bytes, name: str) -> None:
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
        if num_segments > _MAX_PARTS:
            return num_segments
        at += max(2, int.from_bytes(data[at : at + 2], "big"))
    return num_scans


# Image files without metadata, so that broken metadata does not reject a whole image.
#
# Text, ICC profiles, EXIF, XMP, thumbnails and further images are removed from the file's
# structure; nothing is decoded. The orientation (from EXIF or XMP) stays if it is intact. A file
# whose structure is not understood is returned unchanged: its decoder reports the problem.


_PNG = b"\x89PNG\r\n\x1a\n"
_TURNING_TEXTS = (b"Raw profile type exif", b"XML:com.adobe.xmp")
"""Keywords of PNG texts that may state an orientation."""
_MAX_TEXT_BYTES = 1 << 20
"""Limit of such a text, unpacked; Pillow's own limit."""

_MAX_PARTS = 4096
"""Limit of parts of a file between which metadata is removed: far above what any writer
produces, and a bound on memory."""
_MAX_TAG_VALUES = 1_000_000
"""Limit of the values of a TIFF's tag: Pillow makes a Python number of each."""
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"

_TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
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


class _HostileImageError(ValueError):
    """A part of the file that no writer makes, and that would take memory out of proportion."""


def without_metadata(data: bytes) -> bytes:
    """Return the file with only its pixels and orientation; `data` itself if nothing changes."""
    try:
        if data.startswith(_PNG):
            return _strip_png(data)
        if data.startswith(_TIFF_STARTS):
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
    end, kind = len(_PNG), b""
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
    if is_plain or not first or len(header) > _MAX_PARTS:
        return data
    parts = (_PNG, *header.values(), *turning.values(), view[first:last], _PNG_END)
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
    if count > _MAX_PARTS:
        return data
    entries = [data[at : at + entry_size] for at in range(first, end, entry_size)]
    kept = [e for e in entries if struct.unpack_from(order + "H", e)[0] in _TIFF_TAGS]
    if any(struct.unpack_from(order + offset_format, e, 4)[0] > _MAX_TAG_VALUES for e in kept):
        message = f"a tag of more than {_MAX_TAG_VALUES:,} values, of strips or tiles"
        raise _HostileImageError(message)
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
    while data[at] == 0xFF and len(kept) < _MAX_PARTS:
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
    while at + 8 <= len(data) and len(kept) < _MAX_PARTS:
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


# Image bytes to upright RGB, by Pillow for the formats of image_formats.py and by libjpeg-turbo.
#
# EXIF orientation is applied, transparency is composed over white, 16-bit grey is scaled to 8
# bits, CMYK and other colour models are converted without their ICC profile, and an animation
# gives its first frame. Unsupported images are rejected with a reason. Only Pillow decides this,
# so the same images are rejected by either decoder.


_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transposition that makes an image upright, by EXIF orientation if it is not 1 (CIPA DC-008,
4.6.4.A)."""

SIDEWAYS = frozenset({5, 6, 7, 8})
"""Orientations that swap width and height."""

_DIRECT_MODES = frozenset({"RGB", "L", "1", "P", "CMYK", "YCbCr", "HSV"})
_ALPHA_MODES = frozenset({"RGBA", "LA", "PA", "La", "RGBa"})
_STRIP_PIXELS = 1 << 20

_LEAST_PIXEL_LIMIT = 1 << 24
"""Pillow's limit also applies to crops in this process, and it is global: below this many
pixels only `open_image` compares."""


def limit_inner_pixels(max_pixels: int) -> None:
    """Make Pillow refuse images inside files that have more pixels than allowed.

    `open_image` compares the size in a file's header with `max_pixels`, but an icon, an
    animation or a tile has its own size. Pillow raises an error at twice its limit, and warns
    at the limit. Its warnings, including those about broken metadata, are suppressed: an image
    is accepted or rejected.
    """
    Image.MAX_IMAGE_PIXELS = max(max_pixels, _LEAST_PIXEL_LIMIT) // 2
    warnings.filterwarnings("ignore", module=r"PIL\.")


def open_image(data: bytes, *, max_pixels: int, name: str) -> Image.Image:
    """Read the image's header; nothing is decoded yet, except an icon.

    Raises:
        SampleRejectedError: not an image, a broken header, or too many pixels.
    """
    _check_icon(data, name)
    _check_scans(data, name)
    is_read_while_decoding = data.startswith((_PNG, *_TIFF_STARTS))
    try:
        plain = without_metadata(data) if is_read_while_decoding else data
        image = Image.open(io.BytesIO(plain), formats=FORMATS)
    except MemoryError:
        raise
    except _HostileImageError as error:
        raise broken(error, name) from error
    except Exception as error:  # noqa: BLE001 - Pillow's plugins raise any for broken bytes
        try:
            image = Image.open(io.BytesIO(without_metadata(data)), formats=FORMATS)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - the first error says what is wrong
            raise _unopened(error, data, name=name, max_pixels=max_pixels) from error
    if image.width * image.height > max_pixels:
        message = f"{name}: {image.width} x {image.height} pixels, max_pixels is {max_pixels}"
        raise SampleRejectedError(reason="too_many_pixels", message=message)
    return image


def _accepts(kind: str, prefix: bytes) -> bool:
    accept = Image.OPEN[kind][1]
    try:
        return accept is not None and accept(prefix) is True
    except (struct.error, IndexError):  # less than a signature
        return False


def _unopened(error: Exception, data: bytes, *, name: str, max_pixels: int) -> SampleRejectedError:
    """Return the rejection of a file that Pillow did not open."""
    if isinstance(error, Image.DecompressionBombError):
        count = next(iter(re.findall(r"\d+", str(error))), "too many")
        message = f"{name}: {count} pixels, max_pixels is {max_pixels}"
        return SampleRejectedError(reason="too_many_pixels", message=message)
    if not isinstance(error, UnidentifiedImageError):
        return broken(error, name)
    Image.init()
    known = next((kind for kind in (*FORMATS, *Image.OPEN) if _accepts(kind, data[:16])), None)
    if known in FORMATS:
        message = f"{name}: a {known} file whose header is broken or truncated"
        return SampleRejectedError(reason="corrupt_image", message=message)
    begins = f"not a supported image format (it begins with {data[:12]!r})"
    foreign = f"{f'a file of the format {known}' if known else begins}{_CONVERT}"
    message = f"{name}: {_describe_foreign(data) or foreign}"
    return SampleRejectedError(reason="not_an_image", message=message)


def broken(error: Exception, name: str) -> SampleRejectedError:
    """Return the rejection of an image that a decoder failed on, with the error's type."""
    if isinstance(error, Image.DecompressionBombError):
        return SampleRejectedError(reason="too_many_pixels", message=f"{name}: {error}")
    reason: Reason = "truncated_image" if "truncated" in str(error).lower() else "corrupt_image"
    is_plain = isinstance(error, (OSError, _HostileImageError))
    kind = "" if is_plain else f"{type(error).__name__}: "
    return SampleRejectedError(reason=reason, message=f"{name}: {kind}{error}")


def decode_upright(image: Image.Image, name: str) -> Image.Image:
    """Decode an opened image to mode RGB, upright, by Pillow.

    Raises:
        SampleRejectedError: broken, or of an unknown range.
    """
    try:
        image.load()
        method = _UPRIGHT.get(orientation_of(image))
        # ImageOps.exif_transpose gives the same pixels, but also rewrites the EXIF block, and
        # fails if any other tag of it cannot be written.
        upright = image if method is None else image.transpose(method)
    except MemoryError:  # not the image's fault: the task fails, and no sample is lost
        raise
    except Exception as error:  # Pillow's plugins raise any exception for broken bytes
        raise broken(error, name) from error
    return _to_rgb(upright, name)


def read_upright_size(data: bytes, *, max_pixels: int, name: str) -> tuple[int, int]:
    """Return (width, height) of the upright image from the file's header; decodes nothing.

    Raises:
        SampleRejectedError: not an image, broken, or too large.
    """
    image = open_image(data, max_pixels=max_pixels, name=name)
    if image.format == "TIFF":  # Pillow turns these itself, and reports the final size
        return image.size
    width, height = image.size
    return (height, width) if orientation_of(image) in SIDEWAYS else (width, height)


def orientation_of(image: Image.Image) -> int:
    """Return the EXIF orientation of the stored image; 1, upright, if it is unreadable."""
    try:
        # `image.getexif` would decode a PNG; its orientation is stored before the pixels
        orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - raised by broken EXIF; the pixels may be whole
        return 1
    return orientation if orientation in _UPRIGHT else 1


def turn_upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Turn pixels [height, width, 3] by EXIF orientation; a copy if they are turned."""
    method = _UPRIGHT.get(orientation)
    if method is None:
        return pixels
    return np.asarray(Image.fromarray(pixels).transpose(method))


def decode_jpeg(data: bytes, *, width: int, height: int, denominator: int) -> np.ndarray | None:
    """Decode a JPEG of `width` x `height` at 1, 1/2, 1/4 or 1/8 of its size, rounded up.

    The pixels equal Pillow's (with `draft` at a fraction), as uint8 [h, w, 3], not turned. None
    if libjpeg-turbo reports any problem: Pillow then decides.
    """
    at_least = (-(-width // denominator), -(-height // denominator))
    try:
        pixels: np.ndarray = simplejpeg.decode_jpeg(
            data, "RGB", min_width=at_least[0], min_height=at_least[1]
        )
    except ValueError:
        return None
    return pixels if pixels.shape == (at_least[1], at_least[0], 3) else None


def _to_rgb(image: Image.Image, name: str) -> Image.Image:
    if image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.uint32)  # convert("L") would clip at 255 instead
        transparent = image.info.get("transparency")  # the transparent grey of a PNG becomes white
        if isinstance(transparent, int):
            values = np.where(values == transparent, 65535, values)
        return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")
    if image.mode not in _ALPHA_MODES and "transparency" not in image.info:
        if image.mode not in _DIRECT_MODES:
            message = f"{name}: pixels of mode {image.mode}; convert it to 8-bit RGB"
            raise SampleRejectedError(reason="unsupported_mode", message=message)
        return image.convert("RGB")
    straight = {"La": "LA", "RGBa": "RGBA"}.get(image.mode, image.mode)
    flat = Image.new("RGB", image.size)
    rows = max(1, _STRIP_PIXELS // max(1, image.width))
    for top in range(0, image.height, rows):  # in strips: each step is a copy
        box = (0, top, image.width, min(image.height, top + rows))
        with_alpha = image.crop(box).convert(straight).convert("RGBA")
        white = Image.new("RGBA", with_alpha.size, (255, 255, 255, 255))
        flat.paste(Image.alpha_composite(white, with_alpha).convert("RGB"), (0, top))
    return flat


# Resizing of pixels to the size that the model needs, from as few pixels as possible.
#
# `exact` uses Pillow, as the image processors of transformers do. The faster way is torch, whose
# antialiasing filters are Pillow's (bilinear, bicubic, Lanczos) in vector instructions;
# torchvision, and so transformers' other image processors, use it. Its weights have 16 bits, so
# some values differ by one step of 255. At black and white edges they differ by up to about 25
# where Pillow 13 takes the vertical pass first (python-pillow/Pillow#9549): where an image loses
# height and keeps or gains width, and where it loses clearly more height than width. torch begins
# with the rows. It gives the same pixels with AVX2, AVX-512 and neither. Both release the
# interpreter's lock.


_TORCH_MODES = {
    Image.Resampling.LANCZOS: "lanczos",
    Image.Resampling.BILINEAR: "bilinear",
    Image.Resampling.BICUBIC: "bicubic",
}
"""Pillow's filters that torch has, too."""

_LEAST_RATIO: Mapping[ImageDecoding, Mapping[int, float]] = {
    "exact": {},
    "fine": {8: 3.0, 4: 3.0, 2: 3.0},
    "fast": {8: 1.0, 4: 1.0, 2: 0.8},
}
"""Minimum ratio of the decoded size at 1/8, 1/4 or 1/2 to the target size. libjpeg-turbo has
vector instructions for these fractions.

Measured on photographs and on images of their spectrum (docs/image-decoding.md): from three times
the size the result is at least 50 dB from exact. From 0.8 times it is 28 to 44 dB, where from one
time it was 29 to 47: little more is lost than halving loses anyway, and a megapixel for a model
of 512 pixels decodes in 0.7 of the time. Lower ratios would need to invent many lines, and the
smaller fractions save too little time.
"""

_ROUNDING = 1e-3
"""Pixels: torch rounds the number of rows and columns down, so a product slightly below a whole
number must not lose one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resize:
    """Target size of an upright image, and its crop."""

    width: int
    height: int
    resample: int
    """Pillow's number of the filter (3 is bicubic)."""
    crop: tuple[int, int, int, int] | None = None
    """Left, upper, right and lower edge within `width` and `height`; None keeps all."""


Target = Callable[[int, int], Resize]
"""Maps width and height of the upright image to its resize."""


def jpeg_denominator(width: int, height: int, resize: Resize, decoding: ImageDecoding) -> int:
    """Return the factor, 1, 2, 4 or 8, by which a JPEG may be decoded smaller."""
    if resize.resample not in _TORCH_MODES:
        return 1
    ratio = min(width / resize.width, height / resize.height)
    allowed = _LEAST_RATIO[decoding].items()
    return next((number for number, least in allowed if ratio >= number * least), 1)


def resize_image(image: Image.Image, resize: Resize) -> np.ndarray:
    """Resize an image of mode RGB by Pillow to uint8 [height, width, 3]; `crop` is applied."""
    resized = image.resize((resize.width, resize.height), Image.Resampling(resize.resample))
    return np.asarray(resized if resize.crop is None else resized.crop(resize.crop))


def resize_pixels(
    pixels: np.ndarray,
    resize: Resize,
    decoding: ImageDecoding,
    *,
    extent: tuple[float, float] | None = None,
) -> np.ndarray:
    """Resize uint8 [height, width, 3]; `crop` is applied.

    `extent` is the width and height in pixels of the image if it is less than the array: a JPEG
    of 641 columns, decoded at half its size, has 321 columns, and the last is half a pixel.

    Raises:
        MemoryError: torch reported a lack of memory, as a RuntimeError.
    """
    mode = _TORCH_MODES.get(Image.Resampling(resize.resample))
    if decoding == "exact" or mode is None:
        return resize_image(Image.fromarray(pixels), resize)
    height, width = pixels.shape[:2]
    owned = np.require(pixels, np.uint8, ["C", "W"])  # torch warns about read-only arrays
    size: dict[str, Any] = {"size": (resize.height, resize.width)}
    # by factors, because `extent` is not the array's size
    if extent not in (None, (width, height)):
        factors = ((resize.height + _ROUNDING) / extent[1], (resize.width + _ROUNDING) / extent[0])
        size = {"scale_factor": factors, "recompute_scale_factor": False}
    values = torch.from_numpy(owned)[None].permute(0, 3, 1, 2)  # channels last, as in memory
    try:
        resized = torch.nn.functional.interpolate(values, mode=mode, antialias=True, **size)
    except RuntimeError as error:
        if "allocate memory" in str(error):
            raise MemoryError(str(error)) from error
        raise
    whole = resized[0, :, : resize.height, : resize.width].permute(1, 2, 0).contiguous().numpy()
    return cut_out(whole, resize.crop)


def cut_out(pixels: np.ndarray, crop: tuple[int, int, int, int] | None) -> np.ndarray:
    """Crop [height, width, 3] to left, upper, right and lower edge; None keeps all."""
    if crop is None:
        return pixels
    left, upper, right, lower = crop
    return np.ascontiguousarray(pixels[upper:lower, left:right])
