"""Report as one HTML page that opens offline. PURE.

Its template is read from the package. No script, no request: everything is drawn here, in the
order of the terminal report. Its sections are in `page/`.
"""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.page.gantt import timeline_section
from slurm_jobs.report.page.markup import definitions, el
from slurm_jobs.report.page.page_file import render_page
from slurm_jobs.report.page.sections.attempts_section import attempts_section
from slurm_jobs.report.page.sections.data_section import data_section
from slurm_jobs.report.page.sections.findings_section import findings_section
from slurm_jobs.report.page.sections.method_section import method_section
from slurm_jobs.report.page.sections.provenance_section import provenance_section
from slurm_jobs.report.page.sections.stages_section import stages_section
from slurm_jobs.report.page.sections.training_section import step_section, training_section
from slurm_jobs.report.values.report_model import RunReport


def render_html(report: RunReport) -> str:
    """Return the whole page."""
    header = report.header
    tiles = [
        el(
            "li",
            el("span", tile.label, class_="label"),
            el("span", tile.value, class_="value"),
            el("span", tile.note, class_="dim"),
        )
        for tile in report.tiles
    ]
    status = el("span", header.status, class_=f"pill p-{header.status}")
    sections = [
        *map(step_section, report.training),
        findings_section(report),
        timeline_section(report),
        *map(training_section, report.training),
        *map(data_section, report.data),
        *(
            el(
                "section",
                el("h2", f"Evaluation: {e.stage}"),
                definitions(units.evaluation(e.numbers)),
            )
            for e in report.evaluation
        ),
        attempts_section(report),
        stages_section(report),
        provenance_section(report),
        method_section(report),
    ]
    return render_page(
        title=f"{header.title}: run report",
        header=el(
            "header",
            el("p", status, " ", header.run_id),
            el("h1", header.title),
            el("p", report.verdict, class_="verdict"),
            el("ul", tiles, class_="tiles"),
        ),
        sections=sections,
        version=header.version,
    )
