"""`chat_template` takes a name or a path."""

from collections.abc import Callable
from pathlib import Path

import pytest

Check = Callable[..., list[str]]

SPEC = """\
name: a
cluster: local
stages:
  p:
    run: preprocess
    config:
      manifest: m.csv
      processor: p
      chat_template: {given}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("image_path,text\na.png,a\n")
    (tmp_path / "a.png").touch()
    (tmp_path / "p").mkdir()
    names = ("tokenizer.json", "preprocessor_config.json", "processor_config.json")
    for name in names:
        (tmp_path / "p" / name).write_text("{}")
    (tmp_path / "own.jinja").write_text("{{ messages }}")


def about_template(lines: list[str]) -> list[str]:
    return [line for line in lines if "chat_template" in line]


@pytest.mark.parametrize("given", ["llava-1.5", "llava-next-mistral", "own.jinja", "./own.jinja"])
def test_names_that_come_with_the_package_and_files_are_taken(check: Check, given: str) -> None:
    assert about_template(check(SPEC.format(given=given))) == []


def test_what_is_neither_is_refused_with_the_names(check: Check, tmp_path: Path) -> None:
    (line,) = about_template(check(SPEC.format(given="llava-1.6")))
    assert line.startswith("9:22: stages.p.config.chat_template: nothing at ")
    assert line.endswith("; the names of templates are llava-1.5, llava-next-mistral")
