"""Files that a command is to write are refused before it runs if they cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.cli.arguments import check_place


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gone/page.html", "--html gone/page.html: there is no folder .*gone; make it"),
        ("there", "--html there: this is a folder; name a file"),
        ("pipe", "--html pipe: this is a device or a pipe"),
        ("/dev/null", "--html /dev/null: this is a device or a pipe"),
        ("link", "--html link: this is a link, .* name .*/page.html itself"),
        ("loop", "--html loop: this is a link, which a file would replace$"),
        ("/dev/stdout", "--html /dev/stdout: this is a link, which a file would replace"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "page.html").touch()
    (tmp_path / "link").symlink_to("page.html")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match=reason):
        check_place("--html", Path(name))


def test_output_files_that_exist_or_have_siblings_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page.html").write_text("of a run before")
    for name in ("page.html", "new.html", str(tmp_path / "new.html")):
        check_place("--html", Path(name))
