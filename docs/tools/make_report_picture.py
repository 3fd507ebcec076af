"""Take the picture of a run's report: `python docs/tools/make_report_picture.py RUN [PICTURE]`.

Opens `RUN/report/report.html` in headless Chromium, which must be installed,
and writes `docs/images/report.png`. `--dark` and `--width 390` show the other
faces of the page.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def main() -> None:
    """Parse the command line and take the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of the run")
    default = Path(__file__).parents[1] / "images" / "report.png"
    parser.add_argument("picture", type=Path, nargs="?", default=default)
    parser.add_argument("--width", type=int, default=1280, help="pixels")
    parser.add_argument("--height", type=int, default=2500, help="pixels")
    parser.add_argument("--dark", action="store_true", help="as in a dark colour scheme")
    options = parser.parse_args()
    page = (options.run / "report" / "report.html").resolve()
    if not page.is_file():
        parser.error(f"{page} is not there; make it with: slurm-jobs report {options.run}")
    take(page, options.picture, width=options.width, height=options.height, dark=options.dark)


def find_browser() -> str:
    """The first of `BROWSERS` that is there.

    Raises:
        FileNotFoundError: none is installed.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        message = f"none of {', '.join(BROWSERS)} is installed"
        raise FileNotFoundError(message)
    return browser


def take(page: Path, picture: Path, *, width: int, height: int, dark: bool) -> None:
    """Write a PNG of the page as it stands in a window of that size.

    Raises:
        FileNotFoundError: no browser is installed.
        subprocess.CalledProcessError: the browser failed.
    """
    browser = find_browser()
    picture.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, *QUIET, f"--user-data-dir={profile}"]
        command += [f"--window-size={width},{height}", f"--screenshot={picture.resolve()}"]
        if dark:
            command.append("--blink-settings=preferredColorScheme=0")
        subprocess.run([*command, page.as_uri()], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
