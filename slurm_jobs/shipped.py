"""Where the files that ship beside the code are: templates and starter configs.

In a checkout they lie next to the package; in an installed wheel, inside it.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE_DIR = Path(__file__).resolve().parent


def shipped_path(*parts: str) -> Path:
    """The shipped file or folder of that name: `shipped_path("templates", "report", "page.html")`.

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
