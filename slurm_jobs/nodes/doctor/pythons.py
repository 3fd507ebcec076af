"""Python of the login node and of the nodes, compared with our requirements. PURE."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from slurm_jobs.base import units
from slurm_jobs.formats.node_records.doctor_facts import NodeFacts
from slurm_jobs.nodes.doctor.doctor_check import Check, Judgement
from slurm_jobs.nodes.doctor.site_facts import MeasuredPython, SpecFacts
from slurm_jobs.nodes.doctor.version_requirements import Mismatch, bounds_of, meets, mismatches

_SLOW_OPEN_S = 0.002
_FILES_OF_TORCH = 3000
"""Approximate number of files that `import torch, transformers` opens."""


def login_python(measured: MeasuredPython) -> Judgement | None:
    """Judge the version of the login node's Python; None if it is within bounds."""
    if (
        not measured.requires_python
        or meets(measured.version, measured.requires_python) is not False
    ):
        return None
    finding = f"Python {measured.version} is outside {measured.requires_python}"
    return Judgement("problem", finding, "create the environment again with a newer Python")


def login_packages(measured: MeasuredPython) -> Judgement:
    """Judge the packages of the login node."""
    python = f"Python {measured.version}"
    if measured.requires is None:
        finding = "slurm-jobs is not installed as a package here, so its bounds are not known"
        return Judgement("unknown", f"{python}; {finding}", "pip install . (in its checkout)")
    bounds = bounds_of(measured.requires)
    wrong = mismatches(measured.packages, bounds)
    if wrong:
        return _mismatched("", wrong, measured.executable, is_needed=True)
    finding = f"{python}, and all {len(bounds)} packages of the login node within bounds"
    return Judgement("ok", finding)


def imports(measured: MeasuredPython) -> Judgement:
    """Judge how fast modules are read."""
    if measured.open_s is None:
        return Judgement("unknown", "no module's file could be timed")
    finding = (
        f"{units.seconds(measured.open_s)} to open and read a module's file ({measured.num_opened})"
    )
    if measured.open_s <= _SLOW_OPEN_S:
        return Judgement("ok", finding)
    all_s = units.seconds(measured.open_s * _FILES_OF_TORCH)
    return Judgement(
        "warning",
        f"{finding}: torch and transformers then take {all_s} at least to import",
        "put the environment on a faster file system, or pack it into one image "
        "(Apptainer, conda-pack unpacked to node-local storage in `setup:`)",
    )


PYTHON_CHECKS: tuple[tuple[str, Callable[[MeasuredPython], Judgement | None]], ...] = (
    ("python", login_python),
    ("packages", login_packages),
    ("imports", imports),
)
"""Checks of the login node's Python."""


def stage_python_checks(measured: MeasuredPython, started: Collection[str]) -> Iterator[Check]:
    """Check the Python interpreters that stages name.

    `started`: those that ran on a node, so that it does not matter if they are missing here.
    """
    for path, is_here in measured.stage_pythons.items():
        if is_here or path in started:
            judgement = Judgement("ok", f"{path} starts {'here' if is_here else 'on the nodes'}")
        else:
            judgement = Judgement(
                "unknown",
                f"{path} is not on this machine; it may be on the nodes alone",
                "the job on nodes shows it; if it fails, correct the stage's `python:`",
            )
        yield judgement.named("stage-python")


def node_python(node: NodeFacts, spec: SpecFacts) -> Judgement | None:
    """Judge the version of a node's Python; None if it is within bounds."""
    if not spec.requires_python or meets(node.python, spec.requires_python) is not False:
        return None
    finding = f"Python {node.python} ({node.executable}) is outside {spec.requires_python}"
    return Judgement("problem", finding, "name another with the stage's `python:`")


def node_packages(node: NodeFacts, spec: SpecFacts) -> Judgement:
    """Judge the packages of a training in a node's Python."""
    python = f"Python {node.python} ({node.executable})"
    if spec.requires is None:
        finding = f"{python} starts; the bounds of its packages are not known"
        return Judgement("unknown", finding, "pip install . (login node)")
    bounds = bounds_of(spec.requires, "train")
    wrong = mismatches(node.packages, bounds)
    if not wrong:
        finding = f"{python} starts, and all {len(bounds)} packages of a training are within bounds"
        return Judgement("ok", finding)
    if not spec.trains and len(wrong) == len(bounds):
        finding = "it has none of the packages of a training, and none is requested"
        return Judgement("ok", f"{python} starts; {finding}")
    return _mismatched(f"{python}: ", wrong, node.executable, is_needed=spec.trains)


def _mismatched(
    prefix: str, wrong: Sequence[Mismatch], executable: str, *, is_needed: bool
) -> Judgement:
    is_missing = any(mismatch.fault == "missing" for mismatch in wrong)
    requirements = " ".join(mismatch.requirement for mismatch in wrong)
    return Judgement(
        "problem" if is_needed and is_missing else "warning",
        prefix + "; ".join(map(str, wrong)),
        f"{executable} -m pip install {requirements}",
    )
