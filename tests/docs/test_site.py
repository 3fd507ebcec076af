"""The site of `make docs`: what docs/conf.py adds to the pages, and that they build."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXTRA = ("sphinx", "myst_parser", "furo")
needs_sphinx = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, EXTRA)),
    reason="the extra `docs` is not installed (`make docs` does)",
)


@pytest.fixture(scope="module")
def conf() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_conf", DOCS / "conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _groups(text: str) -> dict[str, list[str]]:
    trees = re.findall(r"```{toctree}\n:hidden:\n:caption: (.+)\n\n([\w\n/-]+)```", text)
    return {caption: pages.split() for caption, pages in trees}


@needs_sphinx
def test_the_navigation_has_every_page_once_in_its_group(conf: ModuleType) -> None:
    groups = _groups(conf.with_navigation((DOCS / "index.md").read_text()))
    assert list(groups) == [
        "Tutorial", "Run", "The spec", "Clusters", "Data", "Your own code", "Training", "Speed",
        "Recipes", "Reference", "Explanation",
    ]  # fmt: skip
    named = [page for pages in groups.values() for page in pages]
    pages = [str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")]
    assert sorted([*named, "index"]) == sorted(pages)


@needs_sphinx
def test_an_earlier_address_leads_to_a_page(conf: ModuleType, tmp_path: Path) -> None:
    conf.write_redirects(tmp_path)
    earlier = sorted(tmp_path.glob("*.html"))
    assert len(earlier) >= 80
    for page in earlier:
        (address,) = re.findall(r'content="0; url=([\w/-]+)\.html"', page.read_text())
        assert (DOCS / f"{address}.md").is_file(), page.name
        assert not (DOCS / f"{page.stem}.md").exists(), page.name


@needs_sphinx
def test_a_link_out_of_docs_becomes_an_address_of_the_repository(conf: ModuleType) -> None:
    made = conf.with_addresses("[a](../README.md#install) [b](spec.md)", "x")
    assert made == f"[a]({conf.REPOSITORY}README.md#install) [b](spec.md)"
    made = conf.with_addresses("[a](../../README.md) [b](../reference/spec.md#name)", "recipes/x")
    assert made == f"[a]({conf.REPOSITORY}README.md) [b](../reference/spec.md#name)"
    with pytest.raises(FileNotFoundError, match=r"docs/x\.md: \.\./nothing\.md is not there"):
        conf.with_addresses("[a](../nothing.md)", "x")


def _build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    words = ["-q", "-W", "--keep-going", "-E", "-d", str(target / "read"), "-c", str(DOCS)]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *words, str(source), str(target / "html")],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.fixture
def few_pages(tmp_path: Path) -> Path:
    """A source folder of an index and two pages."""
    source = tmp_path / "source"
    source.mkdir()
    index = "# Site\n\n## How-to\n\n- [One](one.md)\n- [Two](two.md)\n"
    (source / "index.md").write_text(index)
    (source / "one.md").write_text("# One\n\n## A part\n\n[two](two.md), [out](../README.md)\n")
    (source / "two.md").write_text("# Two\n\n[a part](one.md#a-part)\n")
    return source


@needs_sphinx
def test_pages_are_built_and_load_nothing_from_elsewhere(few_pages: Path, tmp_path: Path) -> None:
    done = _build(few_pages, tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "html/two.html").read_text()
    assert 'href="one.html#a-part"' in page
    loaded = re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="([^"]+)"', page)
    styles = "".join(f.read_text() for f in (tmp_path / "html/_static").rglob("*.css"))
    loaded += re.findall(r"url\(['\"]?([^)'\"]+)", styles)
    assert [place for place in loaded if re.match(r"(https?:)?//", place)] == []


@needs_sphinx
def test_what_is_broken_ends_the_build(few_pages: Path, tmp_path: Path) -> None:
    (few_pages / "two.md").write_text("# Two\n\n[x](none.md) [y](one.md#none)\n")
    (few_pages / "three.md").write_text("# Three\n")
    done = _build(few_pages, tmp_path)
    assert done.returncode != 0
    for told in (
        "two.md:3: WARNING: 'myst' cross-reference target not found: 'none.md'",
        "two.md:3: WARNING: local id not found in doc 'one': 'none'",
        "three.md: WARNING: document isn't included in any toctree",
    ):
        assert told in done.stderr


@pytest.mark.slow
@needs_sphinx
@pytest.mark.skipif(
    not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    reason="no browser is installed",
)
def test_the_browser_finds_nothing_wrong_but_what_is_planted(
    few_pages: Path, tmp_path: Path
) -> None:
    assert _build(few_pages, tmp_path).returncode == 0
    page = tmp_path / "html/two.html"
    planted = page.read_text().replace("</h1>", '</h1><p style="width:3000px">wide</p>')
    page.write_text(planted)
    done = subprocess.run(
        [sys.executable, str(DOCS / "tools/check_site.py"), str(tmp_path / "html"), "one", "two"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("two, ") and "wide in a window" in line for line in lines[:4])
