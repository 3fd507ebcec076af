"""Pictures that a manifest holds as text: `data:` URIs (RFC 2397), and plain base64.

Plain base64 counts as a picture only if the whole text is base64 and begins with the signature
of an image format. No file with a suffix has such a name: base64 has no dot.
"""

from __future__ import annotations

import binascii
import string
from urllib.parse import unquote_to_bytes

from slurm_jobs.formats.file_signatures import signature_of

_MIN_BARE_CHARS = 64
_BLANKS = b" \t\r\n\v\f"
_ALPHABET = (string.ascii_letters + string.digits + "+/").encode()
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_SIGNATURE_CHARS = 24
"""Base64 characters of 18 bytes, which hold every signature."""


def is_inline_image(text: str) -> bool:
    """Check whether the text of an image is the picture itself, and no name of a file."""
    text = text.lstrip()
    if text[:5].lower() == "data:":
        return True
    if len(text) < _MIN_BARE_CHARS:
        return False
    try:
        head = _from_base64("".join(text[: 2 * _SIGNATURE_CHARS].split())[:_SIGNATURE_CHARS])
    except ValueError:
        return False
    signature = signature_of(head)
    is_known = signature is not None and signature.group == "image"
    is_bmp = head[:2] == b"BM" and head[6:10] == bytes(4)
    if not (is_known or is_bmp or head[4:8] == b"ftyp"):
        return False
    return not _standard(text).rstrip(b"=").translate(None, _ALPHABET)


def inline_image(text: str) -> bytes:
    """Return the bytes in a text for which `is_inline_image` is true.

    Raises:
        ValueError: it is broken; the message is short.
    """
    text = text.strip()
    if text[:5].lower() != "data:":
        return _from_base64(text)
    header, comma, content = text[5:].partition(",")
    if not comma:
        message = "a data URI without a comma before its content"
        raise ValueError(message)
    media_type, *parameters = (word.strip().lower() for word in header.split(";"))
    is_image = media_type in ("", "image") or media_type.startswith("image/")
    if not is_image and "octet-stream" not in media_type:
        message = f"a data URI of {media_type[:40]}, not of an image"
        raise ValueError(message)
    if "base64" not in parameters:
        return unquote_to_bytes(content)
    return _from_base64(unquote_to_bytes(content).decode("latin-1") if "%" in content else content)


def _standard(text: str) -> bytes:
    """Return the text in the standard alphabet, without blanks."""
    return text.encode("ascii", "replace").translate(_TO_STANDARD, _BLANKS)


def _from_base64(text: str) -> bytes:
    """Decode either alphabet; ignore blanks and missing padding."""
    padded = _standard(text)
    content = padded.rstrip(b"=")
    wrong = content.translate(None, _ALPHABET)
    if wrong or len(padded) - len(content) > 2:
        first = chr(wrong[0]) if wrong else "="
        message = f"broken base64: {first!r} among {len(padded):,} characters"
        raise ValueError(message)
    if len(content) % 4 == 1:
        message = f"broken base64: {len(content):,} characters, one more than whole bytes have"
        raise ValueError(message)
    return binascii.a2b_base64(content + b"=" * (-len(content) % 4))
