"""Page of a report, or of samples: one HTML file that opens offline.

No script, no request. PURE except for reading its template.
"""

from __future__ import annotations

from collections.abc import Iterable
from string import Template

from slurm_jobs.base.shipped_files import shipped_text
from slurm_jobs.report.page.markup import Html, join


def render_page(
    *, title: str, header: Html, sections: Iterable[Html | None], version: str, more_style: str = ""
) -> str:
    """Return the whole page; `more_style` is a file in `templates/report` added after the style."""
    names = ("page.css", *([more_style] if more_style else []))
    return Template(_read("page.html")).substitute(
        title=join([title]),
        style="\n".join(_read(name) for name in names),
        header=header,
        sections=join(sections),
        footer=join([f"slurm-jobs {version}"]),
    )


def _read(name: str) -> str:
    return shipped_text("templates", "report", name)
