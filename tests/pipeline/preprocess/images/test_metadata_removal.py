"""Metadata never rejects a picture whose pixels are whole, and turns it where it can be read."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image, PngImagePlugin, TiffImagePlugin

from pipeline.preprocess.images.decode import decode_upright, open_image, read_upright_size
from pipeline.preprocess.images.metadata_removal import without_metadata
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.formats.configs.stages import ImageDecoding
from tests.pipeline.preprocess.pictures import encode, every_way, gradient, load

WIDE = gradient().crop((0, 0, 16, 9))
BROKEN_EXIF = {
    "no TIFF": b"Exif\0\0hello",
    "empty": b"Exif\0\0",
    "cut": b"Exif\0\0II*\0\x08\0\0\0\x09\0\x12\x01",
    "offset": b"Exif\0\0II*\0\xff\xff\xff\xff",
    "zeros": bytes(40),
}


def chunk(kind: bytes, content: bytes, *, crc_error: int = 0) -> bytes:
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body) ^ crc_error)


def exif_of(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


LONG = b"A" * (2 << 20)
PNG_CHUNKS = {
    "long zTXt": chunk(b"zTXt", b"Comment\0\0" + zlib.compress(LONG)),
    "long iTXt": chunk(b"iTXt", b"Comment\0\1\0\0\0" + zlib.compress(LONG)),
    "long tEXt": chunk(b"tEXt", b"Comment\0" + LONG),
    "80 MB of tEXt": chunk(b"tEXt", b"Comment\0" + LONG) * 40,
    "long iCCP": chunk(b"iCCP", b"icc\0\0" + zlib.compress(LONG)),
    "iCCP packed otherwise": chunk(b"iCCP", b"icc\0\7x"),
    "empty iCCP": chunk(b"iCCP", b""),
    "broken XMP": chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0nothing packed"),
    "long XMP": chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(LONG)),
    "broken raw EXIF": chunk(b"tEXt", b"Raw profile type exif\0\nexif\n 4\nzzzz"),
    "wrong CRC of text": chunk(b"tEXt", b"a\0b", crc_error=1),
    "wrong CRC of EXIF": chunk(b"eXIf", exif_of(6), crc_error=1),
    "wrong CRC of an unknown chunk": chunk(b"abCd", b"x", crc_error=1),
    "short gAMA": chunk(b"gAMA", b"\0"),
    "short cHRM": chunk(b"cHRM", b"\0"),
    "short pHYs": chunk(b"pHYs", b"\0"),
    "animation of no frames": chunk(b"acTL", struct.pack(">II", 0, 0)),
    "animation cut short": chunk(b"acTL", b"\0") + chunk(b"fcTL", b"\0"),
    **{f"EXIF: {name}": chunk(b"eXIf", block[6:]) for name, block in BROKEN_EXIF.items()},
}


@every_way
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("broken", PNG_CHUNKS)
def test_no_ancillary_chunk_rejects_a_png(broken: str, place: str, decoding: ImageDecoding) -> None:
    plain = encode(WIDE)
    at = 33 if place == "before" else plain.index(b"IEND") - 4
    data = plain[:at] + PNG_CHUNKS[broken] + plain[at:]
    assert np.array_equal(load(data, decoding), np.asarray(WIDE))
    assert read_upright_size(data, max_pixels=1000, name="x") == (16, 9)


@every_way
@pytest.mark.parametrize("tail", [b"", b"garbage", bytes(100), chunk(b"tEXt", LONG)[:-9]])
def test_what_follows_the_pixels_of_a_png_does_not_matter(
    tail: bytes, decoding: ImageDecoding
) -> None:
    data = encode(WIDE)[:-12] + tail
    assert np.array_equal(load(data, decoding), np.asarray(WIDE))


@pytest.mark.parametrize("lost", [1, 30, 60])
def test_a_png_whose_pixels_are_cut_is_still_rejected(lost: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    data = encode(Image.fromarray(noise), pnginfo=_texts())[: -16 - lost]
    with pytest.raises(SampleRejectedError):
        load(data, "fine")


def _texts() -> PngImagePlugin.PngInfo:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Comment", "hello")
    return texts


@pytest.mark.parametrize("place", [33, -12])
@pytest.mark.parametrize(
    "turning",
    [
        chunk(b"eXIf", exif_of(6)[6:]),
        chunk(
            b"zTXt",
            b"Raw profile type exif\0\0"
            + zlib.compress(f"\nexif\n{len(exif_of(6)):8}\n{exif_of(6).hex()}\n".encode()),
        ),
        chunk(b"iTXt", b'XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation="6"/>'),
    ],
)
def test_a_png_is_turned_upright_next_to_a_broken_chunk(place: int, turning: bytes) -> None:
    plain = encode(WIDE)
    data = plain[:place] + PNG_CHUNKS["long zTXt"] + turning + plain[place:]
    assert read_upright_size(data, max_pixels=1000, name="x") == (9, 16)
    expected = np.asarray(WIDE.transpose(Image.Transpose.ROTATE_270))
    assert np.array_equal(load(data, "exact"), expected)


@every_way
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF"])
@pytest.mark.parametrize("block", BROKEN_EXIF)
def test_broken_exif_leaves_a_picture_as_it_is_stored(
    kind: str, block: str, decoding: ImageDecoding
) -> None:
    """Pillow writes no broken block, so a valid one is overwritten."""
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "a description that takes some more bytes"
    marked = encode(WIDE, kind, exif=exif)
    at = next(marked.index(mark) for mark in (b"II*\0", b"MM\0*") if mark in marked)
    content = BROKEN_EXIF[block].removeprefix(b"Exif\0\0").ljust(60, b"\0")
    data = marked[:at] + content + marked[at + len(content) :]
    pixels = load(data, decoding)
    assert sorted(pixels.shape[:2]) == [9, 16]
    width, height = read_upright_size(data, max_pixels=1000, name="x")
    assert pixels.shape[:2] == (height, width)


def broken_tiff(tag: int, value: object, kind: int) -> bytes:
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags.tagtype[tag] = kind
    tags[tag] = value
    return encode(WIDE, "TIFF", tiffinfo=tags)


@every_way
@pytest.mark.parametrize(
    ("tag", "value", "kind"),
    [
        (34665, 0xFFFFFF00, 4),  # a directory of EXIF behind the end
        (34853, 3, 4),  # a directory of GPS in the header
        (40965, 0, 4),
        (34675, b"no profile", 7),
        (700, b"no XMP", 7),
        (34377, b"8BIM", 7),
        (65000, b"\0", 7),
    ],
)
def test_no_descriptive_tag_rejects_a_tiff(
    tag: int, value: object, kind: int, decoding: ImageDecoding
) -> None:
    assert np.array_equal(load(broken_tiff(tag, value, kind), decoding), np.asarray(WIDE))


@every_way
@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("kept", [0.55, 0.8, 0.97])
def test_a_broken_later_frame_does_not_reject_the_first(
    kind: str, kept: float, decoding: ImageDecoding
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (2, 30, 40, 3), dtype=np.uint8)
    first, second = map(Image.fromarray, noise)
    options = {"lossless": True} if kind == "WEBP" else {}
    whole = encode(first, kind, save_all=True, append_images=[second], **options)
    data = whole[: int(len(whole) * kept)]
    assert np.array_equal(load(data, decoding), load(whole, decoding))


@every_way
@pytest.mark.parametrize(
    "segment",
    [
        b"MPF\0II*\0\x08\0\0\0\1\0\2\xb0\7\0\x20\0\0\0\x1a\0\0\0",  # no number of pictures
        b"MPF\0broken",
        b"ICC_PROFILE\0\2\1",
        b"ICC_PROFILE\0",
    ],
)
def test_no_descriptive_segment_rejects_a_jpeg(segment: bytes, decoding: ImageDecoding) -> None:
    plain = encode(WIDE, "JPEG")
    data = plain[:2] + b"\xff\xe2" + struct.pack(">H", len(segment) + 2) + segment + plain[2:]
    assert np.array_equal(load(data, decoding), load(plain, decoding))


@pytest.mark.parametrize("content", [b"", b"8BIM", b"8BIM\4\4\xff", b"8BIM\x03\xed\0\0\0\0\0\x10"])
def test_no_photoshop_block_rejects_a_jpeg(content: bytes) -> None:
    segment = b"Photoshop 3.0\0" + content
    plain = encode(WIDE, "JPEG")
    data = plain[:2] + b"\xff\xed" + struct.pack(">H", len(segment) + 2) + segment + plain[2:]
    assert np.array_equal(load(data, "fine"), load(plain, "fine"))


def test_a_webp_cut_behind_its_pixels_is_taken() -> None:
    whole = encode(WIDE, "WEBP", lossless=True, exif=exif_of(6), xmp=b"x" * 100)
    data = whole[:-40]
    assert load(data, "fine").shape == (16, 9, 3)


def test_a_file_without_metadata_is_not_copied() -> None:
    for kind in ("PNG", "TIFF"):
        data = without_metadata(encode(WIDE, kind))
        assert without_metadata(data) is data


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG", "WEBP", "AVIF", "GIF"])
def test_any_part_of_a_file_can_be_stripped(kind: str) -> None:
    data = encode(WIDE, kind, exif=exif_of(6))
    for end in range(len(data)):
        without_metadata(data[:end])


def test_the_first_page_of_a_tiff_is_decoded_upright() -> None:
    data = encode(WIDE, "TIFF", exif=exif_of(6), save_all=True, append_images=[WIDE])
    assert decode_upright(open_image(data, max_pixels=1000, name="x"), "x").size == (9, 16)
