"""Archive of our packages: what it holds, and which bytecode."""

from __future__ import annotations

import errno
import os
import py_compile
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import grimp
import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.run import library as library_module
from slurm_jobs.run.snapshot import take_snapshot
from tests.slurm_jobs.run.closed import close
from tests.slurm_jobs.run.from_archive import run_in

TIMESTAMP = py_compile.PycInvalidationMode.TIMESTAMP


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only module of a package that snapshots take for slurm-jobs."""
    module = tmp_path / "site" / "slurm_jobs" / "a.py"
    module.parent.mkdir(parents=True)
    (module.parent / "__init__.py").touch()
    module.write_text("A = 1\n")
    monkeypatch.setattr(library_module, "PACKAGE_DIR", module.parent)
    monkeypatch.setattr(library_module, "LOADED_BY_RANKS", ("slurm_jobs/",))
    for folder in ("pipeline", "templates"):
        (tmp_path / "site" / folder).mkdir()
    monkeypatch.setattr(library_module, "shipped_path", lambda name: tmp_path / "site" / name)
    return module


def bytecode_in(library: Path) -> bytes | None:
    """Return the bytecode that an import of the module from this archive loads."""
    with zipfile.ZipFile(library) as archive:
        names = archive.namelist()
        return archive.read("slurm_jobs/a.pyc") if "slurm_jobs/a.pyc" in names else None


def library_of(code_dir: Path) -> Path:
    return take_snapshot(code_dir, []).folder / "lib.zip"


PRINT_A = "import slurm_jobs.a as a; print(a.A, a.__cached__)"


@pytest.mark.parametrize("mode", ["TIMESTAMP", "CHECKED_HASH", "UNCHECKED_HASH"])
def test_jobs_load_what_was_compiled_before_the_run(
    tmp_path: Path, module: Path, mode: str
) -> None:
    os.utime(module, (1e9, 1e9))
    by = py_compile.PycInvalidationMode[mode]
    py_compile.compile(str(module), invalidation_mode=by)
    library = library_of(tmp_path / "code")
    assert bytecode_in(library) is not None
    assert run_in(library, PRINT_A) == f"1 {library}/slurm_jobs/a.pyc"


def test_a_full_disk_is_named_and_leaves_no_half_snapshot(
    tmp_path: Path, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zipfile.ZipFile, "writestr", refuse)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/code/"):
        take_snapshot(tmp_path / "code", [module])
    assert not any((tmp_path / "code").iterdir())


def test_tracebacks_of_compiled_code_show_the_files_of_the_snapshot(
    tmp_path: Path, module: Path
) -> None:
    module.write_text("def fail():\n    raise ValueError\n")
    py_compile.compile(str(module))
    library = library_of(tmp_path / "code")
    assert bytecode_in(library) is not None
    module.write_text("# a later edit\n" * 2)
    code = "import slurm_jobs.a as a, traceback\ntry: a.fail()\nexcept ValueError: "
    shown = run_in(library, code + "print(traceback.format_exc())")
    assert f'File "{library}/slurm_jobs/a.py", line 2, in fail\n    raise ValueError\n' in shown


def test_jobs_check_assertions_if_the_submitting_python_does_not(
    tmp_path: Path, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    py_compile.compile(str(module), optimize=1)
    flags = SimpleNamespace(optimize=1, verbose=0)
    monkeypatch.setattr(sys, "flags", flags)  # as under `python -O`
    assert bytecode_in(library_of(tmp_path / "optimized")) is None
    py_compile.compile(str(module), optimize=0)
    assert bytecode_in(library_of(tmp_path / "plain")) is not None


@pytest.mark.parametrize(
    ("change", "mode"),
    [
        *(("its text", mode) for mode in py_compile.PycInvalidationMode),
        *((change, TIMESTAMP) for change in ("its time", "the compiler", "its end")),
    ],
)
def test_what_was_compiled_of_another_source_is_left_out(
    tmp_path: Path, module: Path, change: str, mode: py_compile.PycInvalidationMode
) -> None:
    compiled = Path(py_compile.compile(str(module), invalidation_mode=mode) or "")
    assert bytecode_in(library_of(tmp_path / "sound"))
    if change == "its text":
        module.write_text("A = 10\n")
    elif change == "its time":
        os.utime(module, (1e9, 1e9))
    elif change == "the compiler":
        compiled.write_bytes(bytes(4) + compiled.read_bytes()[4:])
    else:
        compiled.write_bytes(compiled.read_bytes()[:-8])
    library = library_of(tmp_path / "other")
    assert bytecode_in(library) is None
    assert run_in(library, PRINT_A).split()[0] == ("10" if change == "its text" else "1")


def test_what_was_compiled_after_the_text_was_copied_is_left_out(
    tmp_path: Path, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    py_compile.compile(str(module))
    write = zipfile.ZipFile.writestr

    def write_and_change(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, data: bytes) -> None:
        write(archive, entry, data)
        if entry.filename == "slurm_jobs/a.py":
            module.write_text("A = 2\n")
            py_compile.compile(str(module))

    monkeypatch.setattr(zipfile.ZipFile, "writestr", write_and_change)
    library = library_of(tmp_path / "code")
    assert module.read_text() == "A = 2\n"
    assert bytecode_in(library) is None
    assert run_in(library, PRINT_A).split()[0] == "1"


def test_bytecode_of_another_python_is_compiled_again(tmp_path: Path, module: Path) -> None:
    py_compile.compile(str(module))
    library = library_of(tmp_path / "code")
    data = bytecode_in(library)
    assert data is not None
    with zipfile.ZipFile(library, "w") as archive:
        archive.writestr("slurm_jobs/__init__.py", "")
        archive.writestr("slurm_jobs/a.py", "A = 7\n")
        archive.writestr("slurm_jobs/a.pyc", bytes(4) + data[4:])
    assert run_in(library, PRINT_A).split()[0] == "7"


def test_a_later_edit_of_a_template_makes_another_snapshot(tmp_path: Path, module: Path) -> None:
    template = module.parents[1] / "templates" / "page.html"
    template.write_text("old")
    first = library_of(tmp_path / "code")
    assert library_of(tmp_path / "code") == first
    template.write_text("new")
    with zipfile.ZipFile(library_of(tmp_path / "code")) as archive:
        assert archive.read("slurm_jobs/_shipped/templates/page.html") == b"new"


def test_code_of_ours_that_is_closed_is_refused_and_named(
    tmp_path: Path, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(module.parent, monkeypatch)
    with pytest.raises(InputError, match=f"^{module.parent}: Permission denied"):
        library_of(tmp_path / "code")


def test_what_ranks_import_has_bytecode() -> None:
    imports = grimp.build_graph("slurm_jobs", "pipeline")
    login_node = "pipeline.tools."
    waiting = {
        module
        for module in imports.modules
        if module.startswith(("pipeline.", "slurm_jobs.worker.")) and login_node not in module
    }
    loaded = set()
    while waiting:
        module = waiting.pop()
        loaded.add(module)
        waiting |= imports.find_modules_directly_imported_by(module) - loaded
    assert len(loaded) > 300
    folders = [f"{module.replace('.', '/')}/" for module in loaded - {"slurm_jobs"}]
    assert [name for name in folders if not name.startswith(library_module.LOADED_BY_RANKS)] == []
