"""Import paths of stages that were written before December 2026.

The documentation and the shipped configs named these modules. The copies in users' folders get the
same modules here, so that slurm-jobs recognises the errors that they raise.
"""

import importlib
import sys

__path__: list[str] = []
"""Python looks for submodules only in packages."""

_PACKAGES = {
    "base": ("errors", "files"),
    "base.processes": ("stop_requests",),
    "formats": ("config", "configs", "expand", "records", "timings"),
    "formats.configs": ("model_parts", "training_parts"),
    "formats.records": ("progress_file", "task_context"),
    "formats.timings": ("step_records",),
}
_by_name = {}
for _package, _names in _PACKAGES.items():
    for _name in _names:
        _module = importlib.import_module(f"slurm_jobs.{_package}.{_name}")
        _by_name[".".join((*_package.split(".")[1:], _name))] = _module
_by_name["process"] = _by_name["processes.stop_requests"]
for _name, _module in _by_name.items():
    sys.modules[f"{__name__}.{_name}"] = _module
    if "." not in _name:
        globals()[_name] = _module
