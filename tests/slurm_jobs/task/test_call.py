import subprocess
import sys
from pathlib import Path

import pytest

from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.task import call
from tests.contexts import make_context

ROOT = Path(__file__).resolve().parents[3]
NEEDS = "def run(config, context):\n    import no_such_module_here\n"


@pytest.fixture
def user_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules a stage may name."""
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    return tmp_path


def test_a_builtin_stage_without_its_packages_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['PIL'] = None\n"  # as if it were not installed
        "from slurm_jobs.task.call import find_function\n"
        "find_function('preprocess')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    said = done.stderr.splitlines()[-1]
    assert "`run: preprocess`: " in said
    assert f"in {sys.executable}; install `slurm-jobs[train]` in that Python" in said
    assert said.endswith("or name the stage's `python:`")
    assert "beside the spec" not in said


def test_a_builtin_stage_that_imports_late_says_the_same(
    user_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user_dir / "late_importer.py").write_text(NEEDS)
    monkeypatch.setitem(call.BUILTIN_ENTRY_POINTS, "train", "late_importer:run")
    with pytest.raises(StageConfigError, match=r"no_such_module_here.*install `slurm-jobs\[train"):
        call._called("train", make_context("train", user_dir))


def test_what_a_users_function_lacks_is_its_own_matter(user_dir: Path) -> None:
    (user_dir / "users_importer.py").write_text(NEEDS)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
        call._called("users_importer:run", make_context("s", user_dir))


def test_a_users_module_that_is_not_there_may_be_put_beside_the_spec(user_dir: Path) -> None:
    assert user_dir
    with pytest.raises(StageConfigError, match="put it beside the spec") as caught:
        call.find_function("no_such_module_here:run")
    assert "slurm-jobs[train]" not in str(caught.value)
