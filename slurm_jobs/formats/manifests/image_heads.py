"""First bytes of the formats of images that the job decodes."""

from __future__ import annotations

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
