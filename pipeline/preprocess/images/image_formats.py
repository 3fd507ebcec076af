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

from pipeline.preprocess.images.image_metadata import MAX_PARTS
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
MAX_JPEG_SCANS = 500
"""Limit for the scans of a JPEG, libjpeg-turbo's own for untrusted files: each scan may touch every
pixel, so a small file of some thousand scans takes hours. Encoders write about ten."""
CONVERT_REMEDY = "; convert it to PNG or JPEG"
_DOWNLOAD = ", probably from a failed download; download the picture again"
_UNPACK = "; unpack it, and name the pictures in it"
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%!PS", f"an EPS or PostScript file{CONVERT_REMEDY}"),
    (0, b"\xc5\xd0\xd3\xc6", f"an EPS file{CONVERT_REMEDY}"),
    (0, b"%PDF-", "a PDF file; convert its pages to PNG or JPEG"),
    (0, b"\xd7\xcd\xc6\x9a", f"a WMF file{CONVERT_REMEDY}"),
    (40, b" EMF", f"an EMF file{CONVERT_REMEDY}"),
    (0, b"\xff\x0a", f"a JPEG XL file{CONVERT_REMEDY}"),
    (0, b"\0\0\0\x0cJXL ", f"a JPEG XL file{CONVERT_REMEDY}"),
    (0, b"II\xbc", f"a JPEG XR file{CONVERT_REMEDY}"),
    (0, b"Image type:", f"an IM file{CONVERT_REMEDY}"),
    (2048, b"PCD_", f"a Photo CD file (PCD){CONVERT_REMEDY}"),
    (0, b"/* XPM */", f"an XPM file{CONVERT_REMEDY}"),
    (0, b"icns", f"a macOS icon (ICNS){CONVERT_REMEDY}"),
    (0, b"\0\0\2\0", f"a Windows cursor (CUR){CONVERT_REMEDY}"),
    (0, b"\x89HDF\r\n", "an HDF5 file; store its pictures as PNG or JPEG"),
    (0, b"\x93NUMPY", "a NumPy array; store it as PNG"),
    (0, b"GRIB", "a GRIB file of weather data"),
    (0, b"BUFR", "a BUFR file of weather data"),
    (0, b"SIMPLE  =", f"a FITS file{CONVERT_REMEDY}"),
    (0, b"v/1\x01", f"an OpenEXR file{CONVERT_REMEDY}"),
    (0, b"#?RADIANCE", f"a Radiance HDR file{CONVERT_REMEDY}"),
    (128, b"DICM", f"a DICOM file{CONVERT_REMEDY}"),
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
    """Describe a file of another kind by its content, with the remedy; None if unknown."""
    for offset, signature, what in _SIGNATURES:
        if data.startswith(signature, offset):
            return what
    if data[4:8] == b"ftyp":
        brands = {data[8:12], *(data[at : at + 4] for at in range(16, 64, 4))}
        if b"avif" in brands or b"avis" in brands:
            return None
        if brands & _HEIF_BRANDS:
            return f"a HEIC or HEIF file{CONVERT_REMEDY}"
        return "an MP4 or QuickTime video; name pictures of its frames"
    if not any(data[:_MAX_TEXT]) and not any(data):
        return f"only zero bytes{_DOWNLOAD}"
    text = data[:_MAX_TEXT].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(b"%!ps"):
        return f"an EPS or PostScript file{CONVERT_REMEDY}"
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
