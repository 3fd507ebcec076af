"""Size of the values that the rows of a Parquet column share, from its first page. PURE.

A dictionary page has a value once, and each row refers to it by number: a file of some kilobytes
may have one value of megabytes in thousands of rows, so batches of it must be short. The footer
does not have the size of that page, only the page's header does.
"""

from __future__ import annotations

import re

HEADER_BYTES = 16
"""Bytes of a page's header that are needed."""
UNKNOWN_BYTES = 1 << 31
"""Size of a page whose header is not as writers write it: the largest that a page may have."""

_HEADER = re.compile(rb"\x15(?P<kind>[\x00\x04\x06])\x15(?P<size>[\x80-\xff]{0,4}[\x00-\x7f])")
"""Kind and unpacked size of a page, its first two fields, as numbers of Thrift's compact protocol:
7 bits per byte, twice the value (parquet-format, `PageHeader`)."""
_DICTIONARY_KIND = b"\x04"


def dictionary_bytes(header: bytes) -> int:
    """Return the unpacked size of the dictionary whose page begins so; 0 for a page of rows."""
    match = _HEADER.match(header)
    if match is None:
        return UNKNOWN_BYTES
    if match["kind"] != _DICTIONARY_KIND:
        return 0
    size = 0
    for index, byte in enumerate(match["size"]):
        size |= (byte & 0x7F) << 7 * index
    return size >> 1
