"""Configuration and provenance: user, code, nodes, packages, spec. PURE."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from slurm_jobs.base import units
from slurm_jobs.nodes.probe.probe_text import (
    COMPUTE_COLUMNS,
    FILE_COLUMNS,
    busy,
    compute_row,
    file_row,
    reasons,
    topology,
)
from slurm_jobs.report.page.markup import Html, bullets, definitions, el, titled_table
from slurm_jobs.report.values.provenance_model import EqualNodes, PythonFacts, SubmissionFacts
from slurm_jobs.report.values.report_model import RunReport

_MAX_NODES = 6
"""Maximum names of nodes in a row; the JSON has all."""
_MAX_ROWS = 30
_MAX_SPEC_CHARS = 60_000
_COMMIT_CHARS = 12


def provenance_section(report: RunReport) -> Html:
    """Return user, code, nodes, packages and the folded spec."""
    header, numbers = report.header, report.provenance
    submissions, probes = numbers.submissions, numbers.probes
    slurm = next((s.slurm_version for s in reversed(submissions) if s.slurm_version), "")
    facts = [
        ("run", header.run_id),
        ("submitted", units.moment(header.created_unix_s)),
        ("by", f"{header.submitted_by} on {header.host}"),
        ("scheduler", f"{header.scheduler} ({slurm})" if slurm else header.scheduler),
        ("spec", header.spec_file),
        ("version", header.version),
    ]
    submitted = [
        (units.moment(s.recorded_unix_s), _command_text(s.command), code_text(s))
        for s in submissions
    ]
    software = [
        (", ".join(p.stages), *_python_cells(p.python), " ".join(p.modules) or "none")
        for p in numbers.pythons
    ]
    software += [("(login node)", *_python_cells(s.python), "") for s in submissions[:1]]
    downloaded = [
        (d.stage, d.folder, d.commit or units.NOT_KNOWN, units.num_bytes(d.num_bytes))
        for d in numbers.downloads
    ]
    probed = None
    if probes:  # of any age
        compute = [(units.moment(p.measured_unix_s), *compute_row(p)) for p in probes]
        files = [file_row(p) for p in probes]
        lines = [*topology(probes), *busy(probes), *reasons(probes)]
        probed = el(
            "div",
            _texts_table("Probes of its nodes", ("probed", *COMPUTE_COLUMNS), compute),
            _texts_table("Their file systems, as probed", FILE_COLUMNS, files),
            bullets(lines) if lines else None,
        )
    spec = json.dumps(report.spec, indent=1, sort_keys=True, ensure_ascii=False)
    if len(spec) > _MAX_SPEC_CHARS:
        spec = spec[:_MAX_SPEC_CHARS] + "\n... cut here; report.json has the rest"
    return el(
        "section",
        el("h2", "Configuration and provenance"),
        definitions(facts),
        _texts_table(
            "Submitted from",
            ("when", "command", "code"),
            submitted,
            "The version that submitted this run recorded neither code nor packages.",
        ),
        _texts_table(
            "Nodes",
            ("stage", "nodes", "CPU", "cores", "memory", "GPUs a node", "driver", "system"),
            [_node_cells(kind) for kind in numbers.nodes],
            "No facts of nodes were noted.",
        ),
        probed,
        _texts_table(
            "Software",
            ("stages", "packages", "Python", "modules"),
            software,
            "No packages were noted.",
        ),
        _texts_table("Downloaded", ("stage", "repository", "commit", "size"), downloaded)
        if downloaded
        else None,
        el("details", el("summary", "The spec as it was understood"), el("pre", spec)),
        id="provenance",
    )


def _texts_table(
    title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], nothing: str = ""
) -> Html:
    """Return a table of texts under its title, or `nothing` without rows."""
    more = len(rows) - _MAX_ROWS
    if not rows:
        return el("div", el("h3", title), el("p", nothing))
    return el(
        "div",
        titled_table(title, columns, rows[:_MAX_ROWS], num_text=len(columns)),
        el("p", f"and {more:,} more, in report.json", class_="dim") if more > 0 else None,
    )


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
        parts.append(f"{units.number_of('file', facts.num_changed)} changed and not committed")
    else:
        parts.append("clean")
    if facts.num_untracked:
        parts.append(f"{facts.num_untracked:,} untracked")
    text = ", ".join(parts)
    if facts.diff_bytes:
        cut = ", cut" if facts.diff_is_cut else ""
        text += f"; the diff is in the run folder ({units.num_bytes(facts.diff_bytes)}{cut})"
    return text + "".join(f"; {name}: {url}" for name, url in facts.remotes.items())


def _node_cells(kind: EqualNodes) -> tuple[str, ...]:
    names = ", ".join(kind.node_names[:_MAX_NODES])
    more = len(kind.node_names) - _MAX_NODES
    gpus = ", ".join(f"{number} x {name}" for name, number in kind.gpus) or "none"
    return (
        kind.stage,
        f"{names} and {more:,} more" if more > 0 else names,
        kind.cpu,
        f"{kind.num_cores}",
        units.NOT_KNOWN if kind.memory_bytes is None else units.num_bytes(kind.memory_bytes),
        f"{units.NOT_KNOWN} ({kind.gpu_problem})" if kind.gpu_problem else gpus,
        ", ".join(kind.drivers),
        kind.system,
    )


def _python_cells(python: PythonFacts) -> tuple[str, str]:
    packages = ", ".join(f"{name} {version}" for name, version in python.packages.items())
    return packages or "none of those that matter", f"{python.version}, {python.executable}"
