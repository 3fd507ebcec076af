"""Modules next to the spec that a stage's module imports as soon as it is loaded. PURE."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from slurm_jobs.base.errors import did_you_mean
from slurm_jobs.spec.spec_files import Files


def import_problem(module: str, folder: str, files: Files) -> str | None:
    """Return which file that loading `module` loads, too, is not valid Python; None without one.

    Only imports at the top level of modules in `folder` count: one inside a function, an `if` or a
    `try` may never run.
    """
    seen: set[str] = set()
    waiting = [(module, file) for file in _files_of(module.split("."), folder)]
    while waiting:
        importer, file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        try:
            tree = parse_module(file, files)
        except (SyntaxError, ValueError) as error:
            return f"{file} is not valid Python: {error}; {importer} imports it"
        if tree is not None:
            waiting.extend((file, imported) for imported in _files_of_imports(tree, file, folder))
    return None


def missing_submodule_problem(module: str, folder: str, files: Files) -> str | None:
    """Return which part of `module` its package in `folder` lacks; None if that is not known.

    It is known for packages with an `__init__.py`, because others may have parts elsewhere.
    """
    names = module.split(".")
    for number in range(1, len(names)):
        package = "/".join((folder, *names[:number]))
        if not files.holds(f"{package}/__init__.py"):
            return None
        name = names[number]
        entries = files.sizes_in(package)
        if entries is None or any(entry.partition(".")[0] == name for entry in entries):
            continue  # perhaps a folder without `__init__.py`, or a compiled module
        near = did_you_mean(name, files.modules_in(package))
        return f"the package {package} has no module `{name}`{near}"
    return None


def parse_module(file: str, files: Files) -> ast.Module | None:
    """Return the syntax tree of a module; None without such a file.

    Raises:
        SyntaxError, ValueError: it is not valid Python.
    """
    try:
        text = files.read_text(file)
    except (OSError, UnicodeDecodeError):
        return None
    return ast.parse(text.removeprefix("\ufeff"), file)  # Python accepts a byte order mark


def _files_of_imports(tree: ast.Module, file: str, folder: str) -> Iterator[str]:
    """Yield the files that the imports at the top level of a module may load."""
    package = PurePosixPath(file).relative_to(folder).parts[:-1]
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield from _files_of(alias.name.split("."), folder)
        elif isinstance(statement, ast.ImportFrom):
            above = package[: len(package) - statement.level + 1] if statement.level else ()
            parts = [*above, *filter(None, (statement.module or "").split("."))]
            for alias in statement.names:  # a submodule, or a name in the module
                yield from _files_of([*parts, alias.name], folder)


def _files_of(names: Sequence[str], folder: str) -> Iterator[str]:
    """Yield the files that a module and the packages around it may have."""
    if names[0] in sys.stdlib_module_names:
        return
    for number in range(1, len(names) + 1):
        path = "/".join((folder, *names[:number]))
        yield from (f"{path}.py", f"{path}/__init__.py")
