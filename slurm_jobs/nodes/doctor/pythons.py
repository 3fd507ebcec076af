"""Python of the login node and of the nodes, compared with our requirements. PURE."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from slurm_jobs.base import units
from slurm_jobs.formats.node_records.doctor_facts import NodeFacts
from slurm_jobs.nodes.doctor.doctor_check import Check
from slurm_jobs.nodes.doctor.site_facts import MeasuredPython, SpecFacts
from slurm_jobs.nodes.doctor.version_requirements import Mismatch, bounds_of, meets, mismatches

_SLOW_OPEN_S = 0.002
_FILES_OF_TORCH = 3000
"""Approximate number of files that `import torch, transformers` opens."""


def python_checks(measured: MeasuredPython) -> Iterator[Check]:
    """Check versions, and how fast modules are read."""
    python = f"Python {measured.version}"
    if measured.requires is None:
        finding = "slurm-jobs is not installed as a package here, so its bounds are not known"
        yield Check.unknown("packages", f"{python}; {finding}", "pip install . (in its checkout)")
    else:
        if measured.requires_python and meets(measured.version, measured.requires_python) is False:
            finding = f"{python} is outside {measured.requires_python}"
            remedy = "create the environment again with a newer Python"
            yield Check.problem("python", finding, remedy)
        bounds = bounds_of(measured.requires)
        wrong = mismatches(measured.packages, bounds)
        if wrong:
            yield _mismatch_check("packages", "", wrong, measured.executable, is_needed=True)
        else:
            finding = f"{python}, and all {len(bounds)} packages of the login node within bounds"
            yield Check.ok("packages", finding)
    if measured.open_s is None:
        yield Check.unknown("imports", "no module's file could be timed")
        return
    finding = (
        f"{units.seconds(measured.open_s)} to open and read a module's file ({measured.num_opened})"
    )
    if measured.open_s <= _SLOW_OPEN_S:
        yield Check.ok("imports", finding)
        return
    all_s = units.seconds(measured.open_s * _FILES_OF_TORCH)
    yield Check.warning(
        "imports",
        f"{finding}: torch and transformers then take {all_s} at least to import",
        "put the environment on a faster file system, or pack it into one image "
        "(Apptainer, conda-pack unpacked to node-local storage in `setup:`)",
    )


def stage_python_checks(measured: MeasuredPython, started: Collection[str]) -> Iterator[Check]:
    """Check the Python interpreters that stages name.

    `started`: those that ran on a node, so that it does not matter if they are missing here.
    """
    for path, is_here in measured.stage_pythons.items():
        if is_here or path in started:
            yield Check.ok("stage-python", f"{path} starts {'here' if is_here else 'on the nodes'}")
            continue
        yield Check.unknown(
            "stage-python",
            f"{path} is not on this machine; it may be on the nodes alone",
            "the job on nodes shows it; if it fails, correct the stage's `python:`",
        )


def node_python_checks(
    node: NodeFacts, spec: SpecFacts, requires: Sequence[str] | None, requires_python: str
) -> Iterator[Check]:
    """Check the Python of a node: its version, and the packages of a training."""
    name, python = "node-packages", f"Python {node.python} ({node.executable})"
    if requires_python and meets(node.python, requires_python) is False:
        finding = f"{python} is outside {requires_python}"
        yield Check.problem("node-python", finding, "name another with the stage's `python:`")
    if requires is None:
        finding = f"{python} starts; the bounds of its packages are not known"
        yield Check.unknown(name, finding, "pip install . (login node)")
        return
    bounds = bounds_of(requires, "train")
    wrong = mismatches(node.packages, bounds)
    if not wrong:
        finding = f"{python} starts, and all {len(bounds)} packages of a training are within bounds"
        yield Check.ok(name, finding)
    elif not spec.trains and len(wrong) == len(bounds):
        finding = "it has none of the packages of a training, and none is requested"
        yield Check.ok(name, f"{python} starts; {finding}")
    else:
        yield _mismatch_check(name, f"{python}: ", wrong, node.executable, is_needed=spec.trains)


def _mismatch_check(
    name: str, prefix: str, wrong: Sequence[Mismatch], executable: str, *, is_needed: bool
) -> Check:
    is_missing = any(mismatch.fault == "missing" for mismatch in wrong)
    grade = Check.problem if is_needed and is_missing else Check.warning
    requirements = " ".join(mismatch.requirement for mismatch in wrong)
    remedy = f"{executable} -m pip install {requirements}"
    return grade(name, prefix + "; ".join(map(str, wrong)), remedy)
