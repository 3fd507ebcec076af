"""What is handed out: the wheel on every Python that is stated, the sdist, and how to cite them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

import slurm_jobs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest needs it there

CHECKOUT = Path(__file__).parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
STATED = [
    c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", c)
]
TINY = """\
name: tiny
cluster: local
stages:
  make:
    shell: echo "$SLURM_JOBS_SLICE" > "$SLURM_JOBS_OUTPUT_DIR/$SLURM_JOBS_SLICE"
    array: {num_slices: 2}
  use: {shell: 'cat "$SLURM_JOBS_MAKE_OUTPUT_DIR"/*', after: make}
"""


def python_of(version: str) -> Path | None:
    """An interpreter of that version, by PATH or as pyenv keeps them; the tests' own counts."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return Path(sys.executable)
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    on_path = shutil.which(f"python{version}")
    for found in [*kept, *([Path(on_path)] if on_path else [])]:
        said = subprocess.run([found, "-V"], capture_output=True, text=True, check=False)
        if said.stdout.startswith(f"Python {version}."):  # pyenv's shims are there without one
            return found
    return None


def pip(python: Path | str, *words: str | Path) -> None:
    quiet = ("-m", "pip", "--disable-pip-version-check", "--quiet")
    subprocess.run([python, *quiet, *words], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "--no-deps", "-w", folder, CHECKOUT)
    (found,) = folder.glob("*.whl")
    return found


def test_the_citation_is_of_this_version_and_has_what_the_format_asks_for() -> None:
    cited = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == slurm_jobs.__version__
    assert cited["authors"] == [{"name": "The slurm-jobs developers"}]
    assert cited["license"] == PROJECT["license"]
    assert {"message", "title", "type", "repository-code"} <= cited.keys()


def wrong_tags(tags: str) -> list[str]:
    """Those of `git tag` that name another version than the package's."""
    versions = [tag for tag in tags.split() if re.fullmatch(r"v\d.*", tag)]
    return [tag for tag in versions if tag != f"v{slurm_jobs.__version__}"]


def test_a_tag_on_this_commit_names_this_version() -> None:
    assert wrong_tags(f"v{slurm_jobs.__version__} v9.9.9 nightly") == ["v9.9.9"]
    command = ["git", "tag", "--points-at", "HEAD"]
    said = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert wrong_tags(said.stdout) == []  # an unpacked sdist has no git: nothing to compare


def test_the_oldest_python_is_the_first_that_is_stated() -> None:
    assert PROJECT["requires-python"] == f">={STATED[0]}"


@pytest.mark.slow
def test_the_wheel_has_its_types_licence_and_templates(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"slurm_jobs/py.typed", "pipeline/py.typed"} <= names
    assert any(re.fullmatch(r"slurm_jobs-[^/]*\.dist-info/licenses/LICENSE", n) for n in names)
    shipped = {n for n in names if n.startswith("slurm_jobs/_shipped/templates/")}
    # All of it is this project's own. What is bundled from elsewhere needs its licence beside it.
    assert {Path(name).suffix for name in shipped} == {".yaml", ".css", ".html", ".json"}


@pytest.mark.slow
def test_the_wheel_from_the_sdist_is_the_same(wheel: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    python = tools / "bin" / "python"
    pip(python, "install", "hatchling>=1.26")
    command = [python, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path / "dist"]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True)
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    pip(python, "wheel", "--no-deps", "-w", tmp_path / "again", sdist)
    (again,) = (tmp_path / "again").glob("*.whl")
    first, second = (zipfile.ZipFile(path) for path in (wheel, again))
    assert first.namelist() == second.namelist()
    differing = [
        name
        for name in first.namelist()
        if first.read(name) != second.read(name) and not name.endswith("/RECORD")
    ]
    assert differing == []


@pytest.mark.slow
@pytest.mark.parametrize("version", STATED)
def test_the_wheel_checks_plans_and_runs_on(version: str, wheel: Path, tmp_path: Path) -> None:
    base = python_of(version)
    if base is None:
        pytest.skip(f"this machine has no Python {version}")
    subprocess.run([base, "-m", "venv", tmp_path / "env"], check=True)
    program = tmp_path / "env" / "bin" / "slurm-jobs"
    pip(program.with_name("python"), "install", "-c", CHECKOUT / "constraints.txt", wheel)
    (tmp_path / "tiny.yaml").write_text(TINY)

    # What it runs is the wheel's own, whatever this process was started with.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}

    def said(*words: str) -> str:
        done = subprocess.run(
            [program, *words], cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "no problems found" in said("check", "tiny.yaml")
    assert "2 jobs" in said("plan", "tiny.yaml", "--no-scripts")
    assert "use: completed (1/1)" in said("run", "tiny.yaml")
    assert "completed" in said("status")
    assert said("logs", "use") == "0\n1\n"
    assert "_ARGCOMPLETE" in said("completion", "bash")
