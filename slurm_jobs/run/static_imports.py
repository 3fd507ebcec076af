"""Modules of the user's code that others import, as far as their text shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

from slurm_jobs.run.code_tree import CodeTree

_COMPUTED = frozenset(
    {
        "__import__",
        "exec",
        "exec_module",
        "import_module",
        "iter_modules",
        "pkgutil",
        "run_module",
        "run_path",
        "runpy",
        "spec_from_file_location",
        "walk_packages",
    }
)
"""Names that show that a module imports others whose names its text does not have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StaticImports:
    """Files of the modules that some files import."""

    files: frozenset[str]
    """Names of the files."""
    are_complete: bool
    """False if a file computes what it imports, or is not valid Python."""


def static_imports(tree: CodeTree, starts: Iterable[str]) -> StaticImports:
    """Return the files `starts`, those of `tree` that they import, and those that these import."""
    seen: set[str] = set()
    waiting = {name for name in starts if name in tree.files}
    are_complete = True
    while waiting:
        seen |= waiting
        imports = direct_imports(tree, waiting)
        are_complete = are_complete and imports.are_complete
        waiting = set(imports.files - seen)
    return StaticImports(files=frozenset(seen), are_complete=are_complete)


def direct_imports(tree: CodeTree, names: Iterable[str]) -> StaticImports:
    """Return the files of `tree` that some of its files name in their own import statements.

    A file in a folder counts, too, if its path ends in the module's name: code may add that folder
    to `sys.path`.
    """
    files: set[str] = set()
    are_complete = True
    by_end: dict[str, list[str]] = {}
    for name in tree.files:
        by_end.setdefault(name.rpartition("/")[2], []).append(name)
    for name in names:
        if name not in tree.files or not name.endswith(".py"):
            continue
        imports = _imports_in(tree.text(name))
        are_complete = are_complete and imports.are_complete
        for module in imports.absolute_in(name):
            for file in module_files(module):
                ends = by_end.get(file.rpartition("/")[2], ())
                files.update(name for name in ends if f"/{name}".endswith(f"/{file}"))
    return StaticImports(files=frozenset(files), are_complete=are_complete)


def imported_packages(text: str) -> frozenset[str]:
    """Return the first parts of the absolute names that a module's text imports."""
    modules = _imports_in(text).modules
    return frozenset(name.partition(".")[0] for level, name in modules if level == 0)


def module_files(module: str) -> Iterator[str]:
    """Yield the names that the files of a module and of the packages around it may have."""
    parts = module.split(".")
    for number in range(1, len(parts) + 1):
        path = "/".join(parts[:number])
        yield from (f"{path}.py", f"{path}/__init__.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Imports:
    modules: tuple[tuple[int, str], ...]
    """Level of a relative import (0 for an absolute one), and the module's name."""
    are_complete: bool

    def absolute_in(self, file: str) -> Iterator[str]:
        package = PurePosixPath(file).parts[:-1]
        for level, module in self.modules:
            above = package[: len(package) - level + 1] if level else ()
            yield ".".join((*above, *([module] if module else [])))


@cache
def _imports_in(text: str) -> _Imports:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return _Imports(modules=(), are_complete=False)
    modules: dict[tuple[int, str], None] = {}
    are_complete = True
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                modules[0, alias.name] = None
                are_complete = are_complete and alias.name not in _COMPUTED
        elif isinstance(node, ast.ImportFrom):
            are_complete = are_complete and node.module not in _COMPUTED
            for alias in node.names:  # a submodule, or a name in the module
                parts = [part for part in (node.module, alias.name) if part and part != "*"]
                modules[node.level, ".".join(parts)] = None
                are_complete = are_complete and alias.name not in _COMPUTED
        elif isinstance(node, (ast.Name, ast.Attribute)):
            name = node.id if isinstance(node, ast.Name) else node.attr
            are_complete = are_complete and name not in _COMPUTED
    return _Imports(modules=tuple(modules), are_complete=are_complete)
