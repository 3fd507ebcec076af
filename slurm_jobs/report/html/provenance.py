"""The section "Configuration and provenance" of the page: PURE."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from slurm_jobs.common.probe_records import NodeProbe
from slurm_jobs.probes.texts import (
    COMPUTE_COLUMNS,
    FILE_COLUMNS,
    busy,
    compute_row,
    file_row,
    reasons,
    topology,
)
from slurm_jobs.report import words
from slurm_jobs.report.html.markup import Html, definitions, el, table
from slurm_jobs.report.model.provenance import (
    NodeKind,
    ProvenanceNumbers,
    PythonFacts,
    SubmissionFacts,
)
from slurm_jobs.report.model.run import RunReport

_MAX_SPEC_CHARS = 60_000
_MAX_NODES = 6
"""Maximum names of nodes in a row; the JSON has all."""
_MAX_ROWS = 30
_COMMIT_CHARS = 12


def provenance_section(report: RunReport) -> Html:
    """Return user, code, nodes, packages and the folded spec."""
    numbers = report.provenance
    return el(
        "section",
        el("h2", "Configuration and provenance"),
        definitions(_run_facts(report)),
        _submissions(numbers.submissions),
        _nodes(numbers.nodes),
        _probes(numbers.probes),
        _software(numbers),
        _spec(report),
        id="provenance",
    )


def _run_facts(report: RunReport) -> list[tuple[str, str]]:
    header, submissions = report.header, report.provenance.submissions
    slurm = next((s.slurm_version for s in reversed(submissions) if s.slurm_version), "")
    return [
        ("run", header.run_id),
        ("submitted", words.moment(header.created_unix_s)),
        ("by", f"{header.submitted_by} on {header.host}"),
        ("scheduler", f"{header.scheduler} ({slurm})" if slurm else header.scheduler),
        ("spec", header.spec_file),
        ("version", header.version),
    ]


def _submissions(submissions: Iterable[SubmissionFacts]) -> Html:
    rows = [
        (words.moment(s.recorded_unix_s), _command_text(s.command), code_text(s))
        for s in submissions
    ]
    nothing = "The version that submitted this run recorded neither code nor packages."
    return _titled_table("Submitted from", ("when", "command", "code"), rows, nothing)


def _command_text(command: Sequence[str]) -> str:
    """Return the command as typed, the program by name; `python -m slurm_jobs` is equivalent."""
    if not command:
        return ""
    name = PurePosixPath(command[0]).name
    return shlex.join(["slurm-jobs" if name == "__main__.py" else name, *command[1:]])


def code_text(facts: SubmissionFacts) -> str:
    """Return `a1b2c3 (main), 3 files changed, 2 untracked; ...`, or why git gave no answer."""
    if facts.commit is None and facts.git_problems:
        return f"not known to git ({facts.git_problems[0]})"
    commit = facts.commit[:_COMMIT_CHARS] if facts.commit else "no commit yet"
    parts = [f"{commit} ({facts.branch})" if facts.branch else commit]
    if facts.is_dirty is None:
        parts.append("not known whether anything was changed")
    elif facts.is_dirty:
        parts.append(f"{words.number_of('file', facts.num_changed)} changed and not committed")
    else:
        parts.append("clean")
    if facts.num_untracked:
        parts.append(f"{facts.num_untracked:,} untracked")
    text = ", ".join(parts)
    if facts.diff_bytes:
        cut = ", cut" if facts.diff_is_cut else ""
        text += f"; the diff is in the run folder ({words.num_bytes(facts.diff_bytes)}{cut})"
    return text + "".join(f"; {name}: {url}" for name, url in facts.remotes.items())


def _nodes(kinds: Iterable[NodeKind]) -> Html:
    columns = ("stage", "nodes", "CPU", "cores", "memory", "GPUs a node", "driver", "system")
    rows = [
        (
            kind.stage,
            _names(kind.node_names),
            kind.cpu,
            f"{kind.num_cores}",
            words.NOT_KNOWN if kind.memory_bytes is None else words.num_bytes(kind.memory_bytes),
            _gpus(kind),
            ", ".join(kind.drivers),
            kind.system,
        )
        for kind in kinds
    ]
    return _titled_table("Nodes", columns, rows, "No facts of nodes were noted.")


def _names(names: tuple[str, ...]) -> str:
    more = len(names) - _MAX_NODES
    shown = ", ".join(names[:_MAX_NODES])
    return f"{shown} and {more:,} more" if more > 0 else shown


def _gpus(kind: NodeKind) -> str:
    if kind.gpu_problem:
        return f"{words.NOT_KNOWN} ({kind.gpu_problem})"
    return ", ".join(f"{number} x {name}" for name, number in kind.gpus) or "none"


def _probes(probes: Sequence[NodeProbe]) -> Html | None:
    """Return the probe results of the nodes, of any age; None if no node was probed."""
    if not probes:
        return None
    compute = [(words.moment(p.measured_unix_s), *compute_row(p)) for p in probes]
    files = [file_row(p) for p in probes]
    said = [*topology(probes), *busy(probes), *reasons(probes)]
    return el(
        "div",
        _titled_table("Probes of its nodes", ("probed", *COMPUTE_COLUMNS), compute, ""),
        _titled_table("Their file systems, as probed", FILE_COLUMNS, files, ""),
        el("ul", [el("li", line) for line in said]) if said else None,
    )


def _software(numbers: ProvenanceNumbers) -> Html:
    rows = [
        (", ".join(one.stages), *_python_cells(one.python), " ".join(one.modules) or "none")
        for one in numbers.pythons
    ]
    rows += [("(login node)", *_python_cells(s.python), "") for s in numbers.submissions[:1]]
    columns = ("stages", "packages", "Python", "modules")
    return _titled_table("Software", columns, rows, "No packages were noted.")


def _python_cells(python: PythonFacts) -> tuple[str, str]:
    packages = ", ".join(f"{name} {version}" for name, version in python.packages.items())
    return packages or "none of those that matter", f"{python.version}, {python.executable}"


def _titled_table(
    title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], nothing: str
) -> Html:
    """Return a table of texts under its title, or `nothing` without rows."""
    more = len(rows) - _MAX_ROWS
    return el(
        "div",
        el("h3", title),
        table(columns, rows[:_MAX_ROWS], num_text=len(columns)) if rows else el("p", nothing),
        el("p", f"and {more:,} more, in report.json", class_="dim") if more > 0 else None,
    )


def _spec(report: RunReport) -> Html:
    spec = json.dumps(report.spec, indent=1, sort_keys=True, ensure_ascii=False)
    if len(spec) > _MAX_SPEC_CHARS:
        spec = spec[:_MAX_SPEC_CHARS] + "\n... cut here; report.json has the rest"
    return el("details", el("summary", "The spec as it was understood"), el("pre", spec))
