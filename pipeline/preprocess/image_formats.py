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

import struct

from PIL import Image

from pipeline.preprocess.rejects import SampleRejectedError

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


def describe_foreign(data: bytes) -> str | None:
    """Describe a file that is none of the `FORMATS`, with the remedy; None if unknown."""
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
    return _describe_text(data[:_MAX_TEXT]) or _describe_pillow(data[:16])


def _describe_text(data: bytes) -> str | None:
    text = data.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
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


def _describe_pillow(prefix: bytes) -> str | None:
    """Name a format that Pillow recognises by its first bytes, without running its decoder."""
    Image.init()
    for name in Image.OPEN:
        if name not in FORMATS and _accepts(name, prefix):
            return f"a file of the format {name}{_CONVERT}"
    return None


def recognise(data: bytes) -> str | None:
    """Return the format of `FORMATS` that a file's first bytes indicate, else None."""
    Image.init()
    return next((name for name in FORMATS if _accepts(name, data[:16])), None)


def _accepts(name: str, prefix: bytes) -> bool:
    accept = Image.OPEN[name][1]
    try:
        return accept is not None and accept(prefix) is True
    except (struct.error, IndexError):  # less than a signature
        return False


def check_icon(data: bytes, name: str) -> None:
    """Refuse an .ico with an oversized image: Pillow decodes it before it states its size.

    Raises:
        SampleRejectedError: an image of it is larger than `MAX_ICON_PIXELS`.
    """
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
