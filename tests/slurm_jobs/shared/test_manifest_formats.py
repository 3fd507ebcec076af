"""What a manifest's values mean: paths, pictures, kinds of models."""

from __future__ import annotations

import base64
import io
from urllib.parse import quote

import pytest
from PIL import Image

from pipeline.models.families import FAMILIES
from slurm_jobs.shared.manifests.image_paths import is_within, place_of
from slurm_jobs.shared.manifests.keys import inline_image, is_inline_image
from slurm_jobs.shared.manifests.messages import Content
from slurm_jobs.shared.processors import folder
from slurm_jobs.shared.processors.model_types import (
    MADE_IMAGES,
    TAKEN_IMAGES,
    image_processor_class,
)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a.jpg", "/data/a.jpg"),
        ("./b/../a.jpg", "/data/a.jpg"),
        ("../other/a.jpg", "/other/a.jpg"),
        ("../../../../etc/passwd", "/etc/passwd"),
        ("/etc/passwd", "/etc/passwd"),
        ("//etc/passwd", "/etc/passwd"),
        ("t.tar::../../a.jpg", "/data/t.tar"),
        ("../t.tar::a.jpg", "/t.tar"),
        ("a::b.jpg", "/data/a::b.jpg"),
        ("file:///data/a%20b.jpg", "/data/a b.jpg"),
        ("FILE://localhost/etc/passwd", "/etc/passwd"),
        ("file:/data/%2e%2e/etc/passwd", "/etc/passwd"),
        ("file:///data/t.tar::a.jpg", "/data/t.tar"),
        ("file://server/a.jpg", "/data/file:/server/a.jpg"),
    ],
)
def test_a_name_means_one_absolute_path_without_dots(name: str, path: str) -> None:
    assert place_of(name, "/data")[0] == path


@pytest.mark.parametrize(
    ("path", "folder", "is_inside"),
    [
        ("/data/a.jpg", "/data", True),
        ("/data/b/a.jpg", "/data/", True),
        ("/data/b/a.jpg", "/data/x/..", True),
        ("/database/a.jpg", "/data", False),
        ("/data", "/data", False),
        ("/etc/passwd", "/data", False),
        ("/etc/passwd", "/", True),
    ],
)
def test_only_paths_below_a_folder_are_within_it(
    path: str, folder: str, *, is_inside: bool
) -> None:
    assert is_within(path, folder) is is_inside


def test_an_archive_is_recognised_by_its_name_alone() -> None:
    assert place_of("a/t.TAR::x::y.jpg", "/data") == ("/data/a/t.TAR", "x::y.jpg")
    assert place_of("odd::name.jpg", "/data") == ("/data/odd::name.jpg", None)


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


_KINDS = {
    folder.build_fixed: "fixed",
    folder.build_idefics: "tiled",
    folder.build_llava_next: "tiled",
    folder.build_native: "native",
}


def test_whole_models_that_check_knows_are_the_families_that_can_be_trained() -> None:
    assert {name: family.image_kind for name, family in FAMILIES.items()} == TAKEN_IMAGES


def test_processors_that_check_knows_are_those_that_preprocess_understands() -> None:
    assert {name: _KINDS[one.build] for name, one in folder.BUILDERS.items()} == MADE_IMAGES


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"image_processor_type": "Qwen2VLImageProcessorFast"}, "Qwen2VLImageProcessor"),
        ({"image_processor_type": "SmolVLMImageProcessorPil"}, "SmolVLMImageProcessor"),
        ({"feature_extractor_type": "CLIPFeatureExtractor"}, "CLIPImageProcessor"),
        ({}, ""),
    ],
)
def test_a_processor_has_one_name_whatever_its_back_end(values: dict[str, str], name: str) -> None:
    assert image_processor_class(values) == name
