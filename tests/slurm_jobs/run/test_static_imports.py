"""Files that modules of the user import, as far as their text shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.run.code_tree import CodeTree
from slurm_jobs.run.static_imports import StaticImports, static_imports

FILES = {
    "work.py": "import helper\nfrom pkg import a\n",
    "helper.py": "import json\n",
    "pkg/__init__.py": "",
    "pkg/a.py": "from . import b\nfrom .sub.c import name\n",
    "pkg/b.py": "def late():\n    import odd\n",
    "pkg/sub/__init__.py": "",
    "pkg/sub/c.py": "name = 1\n",
    "odd.py": "",
    "unrelated.py": "import helper\n",
    "star.py": "from pkg.sub.c import *\n",
}


def imports_of(folder: Path, start: str, **texts: str) -> StaticImports:
    files = {**FILES, **{f"{name}.py": text for name, text in texts.items()}}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return static_imports(CodeTree({name: folder / name for name in files}), [start])


def test_imports_are_followed_through_packages_and_relative_names(tmp_path: Path) -> None:
    imports = imports_of(tmp_path, "work.py")
    assert imports.are_complete
    assert imports.files == FILES.keys() - {"unrelated.py", "star.py"}


def test_a_star_import_is_one_of_its_module(tmp_path: Path) -> None:
    imports = imports_of(tmp_path, "star.py")
    assert imports.files == {"star.py", "pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/c.py"}


def test_a_module_in_a_folder_that_the_code_adds_to_its_path_counts(tmp_path: Path) -> None:
    imports = imports_of(tmp_path, "star.py", star="import c\n")
    assert imports.files == {"pkg/sub/c.py", "star.py"}


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nimportlib.import_module(name)\n",
        "from importlib import import_module\n",
        "__import__(name)\n",
        "exec(open(name).read())\n",
        "import runpy\n",
        "from runpy import run_path\n",
        "from pkgutil import walk_packages\n",
        "importlib.util.spec_from_file_location(name, path)\n",
        "def broken(:\n",
    ],
)
def test_a_module_that_computes_its_imports_is_noticed(tmp_path: Path, text: str) -> None:
    assert not imports_of(tmp_path, "work.py", helper=text).are_complete
