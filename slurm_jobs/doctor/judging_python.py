"""Python of the login node compared with our requirements. PURE."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from slurm_jobs.doctor.model import Check, PythonLook
from slurm_jobs.doctor.versions import bounds_of, meets, mismatches
from slurm_jobs.report import words

_SLOW_OPEN_S = 0.002
_FILES_OF_TORCH = 3000
"""Approximate number of files that `import torch, transformers` opens."""


def python_checks(look: PythonLook) -> Iterator[Check]:
    """Check versions, and how fast modules are read."""
    yield from _own(look)
    yield _reading(look)


def _own(look: PythonLook) -> Iterator[Check]:
    python = f"Python {look.version}"
    if look.requires is None:
        yield Check(
            name="packages",
            standing="unknown",
            told=f"{python}; slurm-jobs is not installed as a package here, so its bounds are "
            "not known",
            remedy="pip install . (in its checkout)",
        )
        return
    bounds = bounds_of(look.requires)
    if look.requires_python and meets(look.version, look.requires_python) is False:
        yield Check(
            name="python",
            standing="problem",
            told=f"{python} is outside {look.requires_python}",
            remedy="create the environment again with a newer Python",
        )
    wrong = mismatches(look.packages, bounds)
    if wrong:
        missing = any(one.fault == "missing" for one in wrong)
        yield Check(
            name="packages",
            standing="problem" if missing else "warning",
            told="; ".join(map(str, wrong)),
            remedy=f"{look.executable} -m pip install {' '.join(o.requirement for o in wrong)}",
        )
        return
    finding = f"{python}, and all {len(bounds)} packages of the login node within bounds"
    yield Check(name="packages", standing="ok", told=finding)


def stage_python_checks(look: PythonLook, started: Collection[str]) -> Iterator[Check]:
    """Check the Python interpreters that stages name.

    `started`: those that ran on a node, so that it does not matter if they are missing here.
    """
    for path, is_here in look.stage_pythons.items():
        if is_here or path in started:
            finding = f"{path} starts {'here' if is_here else 'on the nodes'}"
            yield Check(name="stage-python", standing="ok", told=finding)
            continue
        yield Check(
            name="stage-python",
            standing="unknown",
            told=f"{path} is not on this machine; it may be on the nodes alone",
            remedy="the job on nodes shows it; if it fails, correct the stage's `python:`",
        )


def _reading(look: PythonLook) -> Check:
    if look.open_s is None:
        return Check(name="imports", standing="unknown", told="no module's file could be timed")
    finding = f"{words.seconds(look.open_s)} to open and read a module's file ({look.num_opened})"
    if look.open_s > _SLOW_OPEN_S:
        all_s = words.seconds(look.open_s * _FILES_OF_TORCH)
        return Check(
            name="imports",
            standing="warning",
            told=f"{finding}: torch and transformers then take {all_s} at least to import",
            remedy="put the environment on a faster file system, or pack it into one image "
            "(Apptainer, conda-pack unpacked to node-local storage in `setup:`)",
        )
    return Check(name="imports", standing="ok", told=finding)
