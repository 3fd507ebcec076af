"""Put what the two commands print into README.md, and take the report's picture.

`python docs/tools/make_readme_output.py DEMO.txt TEST.txt`: the files hold what
`make demo` and `make test` printed (`make demo | tee DEMO.txt`). Long parts
are cut where the text says so; nothing else is changed.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
CUT = "[...]"


def demo_excerpt(text: str) -> str:
    """From the first submitted job to what was found, and the closing lines."""
    lines = text[text.index("submitted ") :].splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("["))
    report = next(i for i, line in enumerate(lines) if re.match(r"\S+  \S+-\d{8}-", line))
    end = next(i for i, line in enumerate(lines) if line.startswith("From submit"))
    page = next(i for i, line in enumerate(lines) if line.startswith("page: "))
    lines = lines[: next(i for i, line in enumerate(lines) if line.startswith("Try next")) + 4]
    progress = [
        line for line in lines[begin:report] if "train: running" in line or "report: c" in line
    ]
    shown = [*lines[:begin], CUT, *progress[-3:], "", *lines[report:end], CUT, *lines[page:]]
    return "\n".join(line.rstrip() for line in shown).strip()


def test_excerpt(text: str) -> str:
    """The closing line of pytest."""
    lines = [line for line in text.splitlines() if re.match(r"^=+ .* in [0-9.]+s", line)]
    return lines[-1].strip("= ")


def machine() -> str:
    """What the commands ran on, and when."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return f"{os.cpu_count()} cores ({model}), no GPU, Python {platform.python_version()}, {day}"


def replace_block(readme: str, name: str, body: str) -> str:
    """The text between `<!-- name: begin -->` and `<!-- name: end -->`, replaced."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, _, rest = readme.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{body}\n{end}{tail}"


def main() -> None:
    """Write README.md and docs/images/report.png."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("demo", type=Path, help="what `make demo` printed")
    parser.add_argument("test", type=Path, help="what `make test` printed")
    options = parser.parse_args()
    demo, tests = options.demo.read_text(), options.test.read_text()
    where = machine()
    readme = README.read_text()
    block = f"```\n{demo_excerpt(demo)}\n```\n\n(On {where}.)"
    readme = replace_block(readme, "demo", block)
    block = f"`make test` ends with `{test_excerpt(tests)}` (on {where})."
    README.write_text(replace_block(readme, "test", block))
    match = re.search(r"^run folder: (\S+)", demo, flags=re.MULTILINE)
    assert match is not None
    picture = [sys.executable, ROOT / "docs/tools/make_report_picture.py", ROOT / match[1]]
    subprocess.run([*picture, "--height", "1500"], check=True)


if __name__ == "__main__":
    main()
