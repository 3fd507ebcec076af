"""Look at a run's report as its readers do: `python docs/tools/check_page.py RUN [--pictures DIR]`.

Opens the page in headless Chromium at the width of a phone and of a desk, light and dark, with and
without JavaScript. Each time: nothing is wider than the window, nothing is said on the console, and
all text stands out from what is behind it by 4.5 or more (WCAG 2.2, 1.4.3). Prints a line for each
and ends with exit code 1 if anything is wrong. `--pictures` keeps the screenshots, cut where the
page ends or becomes long (`docs/images` has those of the demo).
"""

from __future__ import annotations

import argparse
import html
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    from docs.tools.make_report_picture import QUIET, find_browser
except ImportError:  # called as a script, from this folder
    from make_report_picture import QUIET, find_browser

WIDTHS = {"phone": 390, "desk": 1280}
SCHEMES = {"light": 1, "dark": 0}
"""Of Chromium's `preferredColorScheme`."""
HEIGHT = 6000
_MARGIN, _MOST_ROWS = 24, 2600
"""Pixels: left below the last text of a picture that is kept, and of its whole height."""
LEAST_CONTRAST = 4.5
_MOST_LOOKS = 3
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_NO_SCRIPT = {"profile": {"default_content_setting_values": {"javascript": 2}}}
"""Preferences of a profile in which Chromium runs no script."""
_MARK = "found-by-check-page"
SCRIPT = (
    r"""
<script>
(() => {
  const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const luminance = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const parse = text => {
    const found = (text.match(/[\d.]+/g) || []).map(Number);
    return found.length === 3 ? [...found, 1] : found;
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
  const behind = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const faint = new Map();
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || !parent.getClientRects().length) continue;
    if (["SCRIPT", "STYLE", "PRE-CHECK"].includes(parent.tagName)) continue;
    texts += 1;
    const below = behind(parent), colour = over(parse(getComputedStyle(parent).color), below);
    const [dark, bright] = [luminance(colour), luminance(below)].sort((a, b) => a - b);
    const contrast = (bright + 0.05) / (dark + 0.05);
    if (contrast < LEAST)
      faint.set(`${parent.tagName.toLowerCase()}.${parent.className}`,
        [Math.round(contrast * 100) / 100, node.data.trim().slice(0, 40)]);
  }
  const scrolls = e => e && (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX)
    || scrolls(e.parentElement));
  const wide = [...document.querySelectorAll("body *")].filter(e =>
    e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e.parentElement));
  const found = {
    width: innerWidth, page: document.documentElement.scrollWidth, texts,
    wide: wide.slice(0, 5).map(e => `${e.tagName.toLowerCase()}.${e.className}`),
    faint: [...faint].slice(0, 10),
  };
  parent.postMessage([innerWidth, found], "*");
})();
</script>
"""
).replace("LEAST)", f"{LEAST_CONTRAST})")


_FRAMES = """<!doctype html><meta name="color-scheme" content="light dark">{frames}
<pre id="{mark}"></pre>
<script>
  const all = {{}};
  addEventListener("message", told => {{
    all[told.data[0]] = told.data[1];
    document.getElementById("{mark}").textContent = JSON.stringify(all);
  }});
</script>"""
"""The page in frames of each width: a window of Chromium is never less than 500 px wide."""
_FRAME = '<iframe src="{page}" style="border:0;width:{width}px;height:{height}px"></iframe>'


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """The page in one window."""

    name: str
    problems: tuple[str, ...]
    num_texts: int


def main() -> int:
    """Look, print, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="keep the screenshots there")
    options = parser.parse_args()
    page = (options.run / "report" / "report.html").resolve()
    if not page.is_file():
        parser.error(f"{page} is not there; make it with: slurm-jobs report {options.run}")
    looks = list(look(page, options.pictures))
    for each in looks:
        told = "; ".join(each.problems) or f"nothing wrong ({each.num_texts} texts)"
        print(f"{each.name}: {told}")
    return 1 if any(each.problems for each in looks) else 0


def look(page: Path, pictures: Path | None = None) -> Iterator[Look]:
    """The page in each window.

    Raises:
        FileNotFoundError: no browser is installed.
        subprocess.CalledProcessError: the browser failed.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        probed = folder / "probed.html"
        text = _POLICY.sub("", page.read_text(encoding="utf-8"))  # which lets no script run
        probed.write_text(text.replace("</body>", f"{SCRIPT}</body>"), encoding="utf-8")
        for scheme, number in SCHEMES.items():
            blink = f"--blink-settings=preferredColorScheme={number}"
            found = probe(probed, [blink], folder)
            for place, width in WIDTHS.items():
                settings = [f"--window-size={width},{HEIGHT}", blink]
                kept = (pictures or folder) / f"report-{place}-{scheme}.png"
                said = _pictures(page, kept, settings, folder)
                problems = [*problems_of(found[str(width)]), *said]
                if pictures is not None:
                    _cut(kept)
                num_texts = int(found[str(width)]["texts"])
                name = f"{place}, {scheme}"
                yield Look(name=name, problems=tuple(problems), num_texts=num_texts)


def problems_of(found: dict[str, Any]) -> Iterator[str]:
    """What is wrong in one window, by what `probe` found there."""
    if found["page"] > found["width"] + 1 or found["wide"]:
        listed = ", ".join(found["wide"])
        yield f"{found['page']} px wide in a window of {found['width']} px: {listed}"
    for element, (contrast, text) in found["faint"]:
        yield f"contrast {contrast} of {element} ({text})"


def probe(page: Path, settings: list[str], folder: Path) -> dict[str, Any]:
    """What the script finds, by the width of the window."""
    frames = [_FRAME.format(page=page.as_uri(), width=w, height=HEIGHT) for w in WIDTHS.values()]
    framed = folder / "framed.html"
    framed.write_text(_FRAMES.format(frames="\n".join(frames), mark=_MARK))
    done = _browse(framed, [*settings, "--dump-dom", "--virtual-time-budget=3000"], folder)
    match = re.search(rf'<pre id="{_MARK}">(.*?)</pre>', done.stdout, re.DOTALL)
    answer: dict[str, Any] = json.loads(html.unescape(match[1]) or "{}") if match else {}
    if answer.keys() != {str(width) for width in WIDTHS.values()}:
        message = f"{page}: the browser answered for {sorted(answer)}: {done.stderr[-500:]}"
        raise RuntimeError(message)
    return answer


def _pictures(page: Path, kept: Path, settings: list[str], folder: Path) -> list[str]:
    """Take it with and without JavaScript, and give what is wrong with either.

    On a busy machine a browser may take it before the page is whole: two that differ are taken
    again, and what JavaScript does to a page it does each time.
    """
    without = folder / "without.png"
    for _ in range(_MOST_LOOKS):
        said = _picture(page, kept, settings, folder)
        said += _picture(page, without, settings, folder, scripts=False)
        if kept.read_bytes() == without.read_bytes():
            return said
    return [*said, "looks otherwise without JavaScript"]


def _picture(
    page: Path, picture: Path, settings: list[str], folder: Path, *, scripts: bool = True
) -> list[str]:
    """Take it, and give what the page said on the console."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    options = [*settings, "--enable-logging=stderr", f"--screenshot={picture.resolve()}"]
    done = _browse(page, options, folder, scripts=scripts)
    said = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return [f"console: {line.partition(':CONSOLE')[2]}" for line in said]


def _cut(picture: Path) -> None:
    """Leave out what is below the page: rows of one colour."""
    from PIL import Image, ImageChops

    with Image.open(picture) as opened:
        image = opened.convert("RGB")
    below = Image.new("RGB", image.size, image.getpixel((image.width // 2, image.height - 1)))
    box = ImageChops.difference(image, below).getbbox()
    last = _MOST_ROWS if box is None else min(_MOST_ROWS, box[3] + _MARGIN)
    image.crop((0, 0, image.width, last)).quantize(128).save(picture, optimize=True)


def _browse(
    page: Path, options: list[str], folder: Path, *, scripts: bool = True
) -> subprocess.CompletedProcess[str]:
    profile = folder / ("profile" if scripts else "profile-without-scripts")
    if not scripts:
        (profile / "Default").mkdir(parents=True, exist_ok=True)
        (profile / "Default" / "Preferences").write_text(json.dumps(_NO_SCRIPT))
    command = [find_browser(), *QUIET, f"--user-data-dir={profile}", *options, page.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)


if __name__ == "__main__":
    sys.exit(main())
