"""What a manifest's path of an image means."""

from __future__ import annotations

import pytest

from slurm_jobs.formats.manifests.image_paths import is_within, place_of


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
