"""Modules next to the spec that a stage's module imports as soon as it is loaded. PURE.

Only what Python certainly loads counts: an import inside a function, an `if` or a `try` may never
run, a folder without an `__init__.py` gives way to an installed package, and a name that a package
defines itself is no module.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.spec.checks.module_bindings import bindings_of
from slurm_jobs.spec.spec_files import Files


class ModuleReader:
    """Reader of the modules in one folder, which parses each file once."""

    def __init__(self, folder: str, files: Files) -> None:
        self._folder = folder
        self._files = files
        self._trees: dict[str, ast.Module | None] = {}

    def parse(self, file: str) -> ast.Module | None:
        """Return the syntax tree of a file; None without it, or if it is too deep to parse.

        Raises:
            SyntaxError, ValueError: it is not valid Python.
        """
        if file not in self._trees:
            self._trees[file] = self._parse(file)
        return self._trees[file]

    def _parse(self, file: str) -> ast.Module | None:
        try:
            text = self._files.read_text(file)
        except (OSError, UnicodeDecodeError):
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes such as `\d`, perhaps as errors
                # Python accepts a byte order mark at the start of a module.
                return ast.parse(text.removeprefix("\ufeff"), file)
        except (RecursionError, MemoryError):
            return None

    def file_of(self, names: Sequence[str]) -> str | None:
        """Return the file that Python loads for a module; None if the folder has none."""
        path = "/".join((self._folder, *names))
        for file in (f"{path}/__init__.py", f"{path}.py"):
            if self._files.holds(file):
                return file
        return None

    def import_problem(self, module: str) -> str | None:
        """Return which file that loading `module` loads, too, is not valid Python; None without."""
        seen: set[str] = set()
        waiting = [(module, file) for file in self._loaded_files(module.split("."))]
        while waiting:
            importer, file = waiting.pop()
            if file in seen:
                continue
            seen.add(file)
            try:
                tree = self.parse(file)
            except (SyntaxError, ValueError) as error:
                return f"{file} is not valid Python: {error}; {importer} imports it"
            if tree is not None:
                waiting.extend((file, imported) for imported in self._files_of_imports(tree, file))
        return None

    def missing_submodule_problem(self, module: str) -> str | None:
        """Return which part of `module` its package lacks; None if that is not known.

        It is known for packages with an `__init__.py` that does not change where its parts are.
        """
        names = module.split(".")
        for number in range(1, len(names)):
            package = "/".join((self._folder, *names[:number]))
            init = f"{package}/__init__.py"
            if not self._files.holds(init) or self._moves_parts(init):
                return None
            name = names[number]
            entries = self._files.sizes_in(package)
            if entries is None or any(entry.partition(".")[0] == name for entry in entries):
                continue  # perhaps a folder without `__init__.py`, or a compiled module
            near = did_you_mean(name, self._files.modules_in(package))
            return f"the package {package} has no module `{name}`{near}"
        return None

    def _moves_parts(self, init: str) -> bool:
        tree = self._sound_tree(init)
        return tree is None or any(
            isinstance(node, ast.Name) and node.id in {"__path__", "__getattr__"}
            for node in ast.walk(tree)
        )

    def _sound_tree(self, file: str) -> ast.Module | None:
        try:
            return self.parse(file)
        except (SyntaxError, ValueError):
            return None

    def _files_of_imports(self, tree: ast.Module, file: str) -> Iterator[str]:
        package = PurePosixPath(file).relative_to(self._folder).parts[:-1]
        for statement in tree.body:
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    yield from self._loaded_files(alias.name.split("."))
            elif isinstance(statement, ast.ImportFrom):
                above = package[: len(package) - statement.level + 1] if statement.level else ()
                parts = [*above, *filter(None, (statement.module or "").split("."))]
                if parts:
                    yield from self._loaded_files(parts)
                for alias in statement.names:
                    if not self._defines(parts, alias.name):
                        yield from self._loaded_files([*parts, alias.name])

    def _defines(self, package: Sequence[str], name: str) -> bool:
        """Check whether a package may define a name itself, so that no submodule is loaded."""
        file = self.file_of(package) if package else None
        if file is None or not file.endswith("/__init__.py"):
            return file is not None
        tree = self._sound_tree(file)
        return tree is None or bool({name, "*", "__getattr__"}.intersection(bindings_of(tree)))

    def _loaded_files(self, names: Sequence[str]) -> Iterator[str]:
        """Yield the files that an import of a module loads: those of its packages, and its own."""
        if names[0] in sys.stdlib_module_names:
            return
        for number in range(1, len(names) + 1):
            file = self.file_of(names[:number])
            if file is None:
                return
            yield file
            if not file.endswith("/__init__.py"):
                return  # what follows is a name in this module
