"""Record `slurm-jobs watch` of a real run as an animated picture for README.md.

    python docs/tools/make_watch_picture.py [SPEC] [--set PATH=VALUE ...] [--picture FILE]

Submits the spec, watches it in a terminal of tmux's, and notes each screen with its time. The
picture is an SVG that shows the same screens in the same order, `--speed` times as fast; it holds
text, needs no font and no script, and stands still for readers who asked for less motion.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "slurm-jobs"
"""By its name, as the screens show it in next commands."""
COLUMNS, ROWS = 88, 22
LOOK_S = 0.2
"""Between two looks at the screen."""
LAST_S = 4.0
"""For which the last screen stands before the first comes again."""
CELL_X, CELL_Y, EDGE = 8.4, 18, 14
"""Pixels of a character and of the empty edge, at 14 pixels a letter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Screen:
    """What the terminal showed from one moment on."""

    begin_s: float
    """Since the watching began."""
    text: str
    """Lines with their escape sequences."""


def main() -> None:
    """Submit, watch, write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec", type=Path, nargs="?", default=ROOT / "configs" / "demo.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    default = ROOT / "docs" / "images" / "watch.svg"
    parser.add_argument("--picture", type=Path, default=default)
    parser.add_argument("--speed", type=float, default=10.0, help="times as fast as it was")
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run_dir = submit(options.spec, options.set)
    screens = distinct(watched(run_dir))
    options.picture.write_text(animated(screens, speed=options.speed))
    print(f"{options.picture}: {len(screens)} screens of {screens[-1].begin_s:.0f} s; {run_dir}")


def submit(spec: Path, settings: Sequence[str]) -> Path:
    """Submit the spec; the folder of the run.

    Raises:
        subprocess.CalledProcessError: the spec was refused; the reason stands on the screen.
    """
    words = [word for setting in settings for word in ("--set", setting)]
    command = [COMMAND, "submit", str(spec), *words]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    match = re.search(r"^run folder: (\S+)", output, flags=re.MULTILINE)
    assert match is not None, output
    return Path(match[1])


def watched(run_dir: Path) -> Iterator[Screen]:
    """Each look at the terminal of `slurm-jobs watch RUN`, until the command ends."""
    tmux = ("tmux", "-L", f"watch-{run_dir.name}", "-f", "/dev/null")
    size = ("-x", str(COLUMNS), "-y", str(ROWS))
    start_s = time.monotonic()
    shell = "sleep infinity"  # keeps the server while remain-on-exit is being set
    subprocess.run([*tmux, "new-session", "-d", *size, shell], check=True)
    try:
        subprocess.run([*tmux, "set", "-g", "remain-on-exit", "on"], check=True)
        subprocess.run([*tmux, "set", "-g", "status", "off"], check=True)
        respawn = [*tmux, "respawn-pane", "-k", COMMAND, "watch", str(run_dir)]
        subprocess.run(respawn, check=True)
        is_dead = False
        while not is_dead:
            time.sleep(LOOK_S)
            is_dead = _asked(tmux, "display-message", "-p", "#{pane_dead}").strip() == "1"
            text = _asked(tmux, "capture-pane", "-p", "-e")
            yield Screen(begin_s=time.monotonic() - start_s, text=text)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def _asked(tmux: Sequence[str], *words: str) -> str:
    return subprocess.run([*tmux, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def distinct(screens: Iterator[Screen]) -> list[Screen]:
    """Without those that show what the one before showed, and without tmux's own last line."""
    kept: list[Screen] = []
    for screen in screens:
        lines = [line for line in screen.text.splitlines() if "Pane is dead" not in line]
        text = "\n".join(lines).rstrip()
        if text and (not kept or kept[-1].text != text):
            kept.append(Screen(begin_s=screen.begin_s, text=text))
    return kept


def animated(screens: Sequence[Screen], *, speed: float) -> str:
    """An SVG of the screens, one after the other and then again from the first."""
    begins = [(screen.begin_s - screens[0].begin_s) / speed for screen in screens]
    total_s = begins[-1] + LAST_S
    shares = [100 * begin_s / total_s for begin_s in begins] + [100.0]
    width, height = COLUMNS * CELL_X + 2 * EDGE, ROWS * CELL_Y + 2 * EDGE
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    groups = [f'<g id="f{n}">{_drawn(screen.text)}</g>' for n, screen in enumerate(screens)]
    parts = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        "<title>slurm-jobs watch, from the first job to the last</title>",
        f"<style>{_rules(shares, total_s)}</style>",
        f'<rect width="100%" height="100%" rx="8" fill="{MONOKAI.background_color.hex}"/>',
        *groups,
        "</svg>\n",
    )
    return "\n".join(parts)


def _rules(shares: Sequence[float], total_s: float) -> str:
    """Each screen is seen from its own share of the time to the next one's, the last to the end."""
    rules = [
        "text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}",
        "g{visibility:hidden}",
    ]
    last = len(shares) - 2
    for number, (begin, end) in enumerate(pairwise(shares)):
        after = "visible" if number == last else "hidden"
        windows = (
            "0%{visibility:hidden}" if number else "",
            f"{begin:.3f}%{{visibility:visible}}{end:.3f}%{{visibility:{after}}}",
        )
        rules.append(f"@keyframes k{number}{{{''.join(windows)}}}")
        rules.append(f"#f{number}{{animation:k{number} {total_s:.2f}s step-end infinite}}")
    still = f"g{{animation:none!important}}#f{last}{{visibility:visible}}"
    return "\n".join((*rules, f"@media(prefers-reduced-motion){{{still}}}"))


def _drawn(text: str) -> str:
    console = Console(file=StringIO(), width=COLUMNS, color_system="truecolor")
    parts = []
    for row, line in enumerate(text.splitlines()[:ROWS]):
        column = 0
        for segment in Text.from_ansi(line, no_wrap=True).render(console, end=""):
            if segment.text.strip():
                parts.append(_placed(segment.text, segment.style or Style(), row, column))
            column += segment.cell_length
    return "".join(parts)


def _placed(words: str, style: Style, row: int, column: int) -> str:
    """One piece of a line; its width is fixed, so that any reader's font keeps the columns."""
    colour = style.color.get_truecolor(MONOKAI) if style.color else MONOKAI.foreground_color
    weight = ' font-weight="bold"' if style.bold else ""
    faint = ' opacity="0.6"' if style.dim else ""
    x, y = EDGE + column * CELL_X, EDGE + (row + 0.75) * CELL_Y
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" textLength="{len(words) * CELL_X:.1f}" '
        f'fill="{colour.hex}"{weight}{faint}>{escape(words)}</text>'
    )


if __name__ == "__main__":
    main()
