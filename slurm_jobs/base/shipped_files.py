"""Location of the files that ship with the code: templates and starter configs.

In a checkout they are next to the package; in an installed wheel, inside it.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE_DIR = Path(__file__).resolve().parent.parent


def shipped_path(*parts: str) -> Path:
    """Return a shipped file or folder: `shipped_path("templates", "report", "page.html")`.

    Raises:
        FileNotFoundError: neither the checkout nor the installed package has it.
    """
    places = (_PACKAGE_DIR / "_shipped", _PACKAGE_DIR.parent)
    for place in places:
        path = place.joinpath(*parts)
        if path.exists():
            return path
    looked = ", ".join(str(place) for place in places)
    message = f"{'/'.join(parts)} did not ship with slurm-jobs (looked in {looked}); reinstall it"
    raise FileNotFoundError(message)


def shipped_text(*parts: str) -> str:
    """Return the text of a shipped file, which a job reads from the archive of its run's code.

    Raises:
        FileNotFoundError: neither the checkout nor the installed package has it.
    """
    import pkgutil

    try:
        data = pkgutil.get_data("slurm_jobs", "/".join(("_shipped", *parts)))
    except OSError:  # in a checkout
        data = None
    return shipped_path(*parts).read_text(encoding="utf-8") if data is None else data.decode()
