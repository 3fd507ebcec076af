"""Pictures that a manifest holds as text."""

from __future__ import annotations

import base64
import io
from urllib.parse import quote

import pytest
from PIL import Image

from slurm_jobs.formats.manifests.inline_images import inline_image, is_inline_image
from slurm_jobs.formats.manifests.messages import Content


def picture(image_format: str) -> bytes:
    stream = io.BytesIO()
    Image.effect_noise((24, 24), 80).save(stream, image_format)
    return stream.getvalue()


PNG = picture("PNG")
TEXT = base64.b64encode(PNG).decode()
LINES = "\r\n ".join(TEXT[start : start + 76] for start in range(0, len(TEXT), 76))


@pytest.mark.parametrize(
    "text",
    [
        f"data:image/png;base64,{TEXT}",
        f"data:image/png;charset=utf-8;base64,{TEXT}",
        f"data:image/png;name=a.png;BASE64,{TEXT}",
        f"DATA:Image/PNG ; base64,{TEXT}",
        f"data:;base64,{TEXT}",
        f"data:application/octet-stream;base64,{TEXT}",
        f"  data:image/png;base64,\n{LINES}\n",
        f"data:image/png;base64,{TEXT.rstrip('=')}",
        f"data:image/png;base64,{quote(TEXT, safe='')}",
        f"data:image/png;base64,{base64.urlsafe_b64encode(PNG).decode()}",
        f"data:image/png,{quote(PNG)}",
        TEXT,
        LINES,
        base64.urlsafe_b64encode(PNG).decode().rstrip("="),
    ],
)
def test_a_picture_in_the_place_of_a_path_is_decoded(text: str) -> None:
    content = Content(kind="image", value=text)
    assert (content.data, content.value, content.problem) == (PNG, "", "")


@pytest.mark.parametrize(
    "image_format", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "JPEG2000", "ICO"]
)
def test_base64_alone_is_known_by_the_signature_of_its_format(image_format: str) -> None:
    data = picture(image_format)
    text = base64.b64encode(data).decode()
    assert is_inline_image(text)
    assert inline_image(text) == data


@pytest.mark.parametrize(
    "name",
    [
        "a.jpg",
        "/9j/4AAQSkZJRgABAQ/" + "a" * 80 + ".jpg",
        "iVBORw0KGgo.png",
        "photos/" + "x" * 100,
        "A" * 200,
        "photos.tar::cats/1.jpg",
        "database/1.jpg",
        "",
    ],
)
def test_a_path_is_no_picture(name: str) -> None:
    assert Content(kind="image", value=name).value == name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"data:image/png;base64,{TEXT[:50]}!{TEXT[50:]}", "broken base64: '!' among"),
        (f"data:image/png;base64,{TEXT[:41]}", "one more than whole bytes"),
        (f"data:image/png;base64,{TEXT[:40]}=={TEXT[40:]}", "broken base64: '='"),
        ("data:image/png;base64", "without a comma"),
        (f"data:text/plain;base64,{TEXT}", "of text/plain, not of an image"),
        (f"data:video/mp4;base64,{TEXT}", "of video/mp4"),
    ],
)
def test_a_broken_one_has_a_short_reason(text: str, problem: str) -> None:
    content = Content(kind="image", value=text)
    assert content.data is None
    assert problem in content.problem
    assert len(content.value) + len(content.problem) < 200


def test_text_of_a_message_stays_text() -> None:
    text = f"data:image/png;base64,{TEXT}"
    assert Content(kind="text", value=text).value == text
