"""Import paths of stages that were written before December 2026.

The documentation and the shipped configs named modules of this package, which have moved to `base`
and `formats`. An import of an earlier path gives the module itself and not a second copy, so that
slurm-jobs recognises the errors that a stage raises.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__path__: list[str] = []
"""Python looks for submodules only in packages."""
_RENAMED = {"process": "base.processes.stop_requests"}


class _EarlierPaths(MetaPathFinder, Loader):
    """Finds `slurm_jobs.shared.NAME` in the packages that have its modules now."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{__name__}."):
            return None
        tail = name.removeprefix(f"{__name__}.")
        for place in (_RENAMED.get(tail, ""), f"base.{tail}", f"formats.{tail}"):
            if place and _exists(f"slurm_jobs.{place}"):
                return ModuleSpec(name, self, loader_state=f"slurm_jobs.{place}")
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.loader_state)
        spec.loader_state = module.__spec__  # the import replaces it
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


sys.meta_path.insert(0, _EarlierPaths())
