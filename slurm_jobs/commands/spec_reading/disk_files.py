"""File system and Python of this machine, as the loader of specs reads them; read-only."""

from __future__ import annotations

import functools
import importlib.util
import os
from contextlib import suppress
from pathlib import Path

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.regular_files import open_regular, read_text
from slurm_jobs.commands.spec_reading.header_sizes import head_of, size_of
from slurm_jobs.commands.spec_reading.hub_configs import HubConfigs
from slurm_jobs.commands.spec_reading.manifest_tables import first_table_rows, table_facts
from slurm_jobs.formats.expand import expand_path, expand_text
from slurm_jobs.formats.manifests.brace_lists import has_braces
from slurm_jobs.formats.manifests.containers.json_container import find_container
from slurm_jobs.formats.manifests.messages import ManifestRow, RowOrigin
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.table_files import find_table, named_split
from slurm_jobs.formats.manifests.text import MAX_ROWS, first_rows, manifest_damage
from slurm_jobs.formats.manifests.values import read_row
from slurm_jobs.formats.processors.folder import describe_processor, read_processor
from slurm_jobs.formats.processors.image_plans import ImageRules
from slurm_jobs.formats.processors.processor_files import processor_checksums
from slurm_jobs.spec.spec_files import Beginning, Files, hub_not_asked

SMALL_BYTES = 64 * 1024
"""A longer file is not read to check whether it is empty."""
MOST_SIZES = 1000
"""Limit on the files of a folder whose sizes are read: each may be a request to a file server."""


def disk_files(*, to_write: bool = False) -> Files:
    """Return the loader's view of the real file system.

    `to_write`: also check whether runs can be created and images exist, and ask the hub about
    models; reading a run needs none of these.
    """
    return Files(
        read_text=lambda file: read_text(Path(file)),
        exists=_exists,
        expand=expand_path,
        expand_text=expand_text,
        small_text=_small_text,
        first_line=_first_line,
        beginning=_beginning,
        sizes_in=_sizes_in,
        checksums_in=_checksums_in,
        table=functools.cache(table_facts),
        first_rows=functools.cache(_first_rows),
        manifest_damage=functools.cache(_manifest_damage),
        is_folder=os.path.isdir,
        image_size=functools.cache(size_of),
        image_head=functools.cache(head_of),
        image_rules=functools.cache(read_image_rules),
        processor_problem=functools.cache(_processor_problem),
        modules_in=_modules_in,
        has_module=_has_module,
        write_obstacle=_write_obstacle if to_write else lambda _folder: None,
        needs_images=to_write,
        hub_config=HubConfigs().config if to_write else hub_not_asked,
    )


def _beginning(file: str) -> Beginning | None:
    path = Path(file)
    try:
        with open_regular(path) as stream:
            data = stream.read(SMALL_BYTES + 1)
    except (OSError, ValueError):
        return None
    return Beginning(data=data[:SMALL_BYTES], is_whole=len(data) <= SMALL_BYTES)


def _small_text(file: str) -> str | None:
    beginning = _beginning(file)
    if beginning is None or not beginning.is_whole:
        return None
    return beginning.data.decode("utf-8-sig", errors="replace")


def _first_line(file: str) -> str | None:
    beginning = _beginning(file)
    line = b"" if beginning is None else next(iter(beginning.data.splitlines(keepends=True)), b"")
    with suppress(UnicodeDecodeError):
        return line.decode("utf-8-sig") if beginning and len(line) < SMALL_BYTES else None
    return None


def _first_rows(manifest: str, options: RowOptions) -> list[ManifestRow]:
    path = Path(manifest)
    with suppress(OSError, ValueError):
        if find_table(path) is not None:
            return first_table_rows(path, options)
        container = find_container(path)
        if container is not None:
            rows = enumerate(container.rows[:MAX_ROWS])
            origins = [(RowOrigin(row=row, line=None, manifest=path), value) for row, value in rows]
            return [read_row(origin, value, options) for origin, value in origins]
        if path.is_file():
            return first_rows(path, options)
    return []


def _manifest_damage(manifest: str, options: RowOptions) -> str | None:
    path = Path(manifest)
    with suppress(OSError, ValueError):
        if path.is_file() and find_table(path) is None:
            return manifest_damage(path, options)
    return None


def read_image_rules(folder: str) -> ImageRules | None:
    """Return the rules of the image processor in a folder; None if they are unknown."""
    try:
        return read_processor(Path(folder)).images
    except (StageConfigError, OSError, LookupError, TypeError, ValueError, ArithmeticError):
        return None  # the job reports what is wrong with it


def _processor_problem(folder: str) -> str | None:
    try:
        describe_processor(Path(folder))  # not all of it: its tokens may be named by the tokenizer
    except StageConfigError as error:
        return str(error)
    except (OSError, LookupError, TypeError, ValueError):
        return None  # the job reports what is wrong with it
    return None


def _sizes_in(folder: str) -> dict[str, int | None] | None:
    try:
        with os.scandir(folder) as listing:
            entries = list(listing)
        if len(entries) > MOST_SIZES:
            return {entry.name: None for entry in entries}
        return {entry.name: _size_of(entry) for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError):
        return None


def _checksums_in(folder: str) -> dict[str, str]:
    with suppress(OSError, ValueError):
        return processor_checksums(Path(folder))
    return {}


def _size_of(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat().st_size
    except OSError:  # broken link
        return -1


def _modules_in(folder: str) -> frozenset[str]:
    here = Path(folder)
    try:
        packages = [file.parent for file in here.glob("*/__init__.py")]
        names = [path.stem for path in (*here.glob("*.py"), *packages)]
    except OSError:
        return frozenset()
    return frozenset(name for name in names if name.isidentifier())


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # module put into sys.modules without a spec
        return True


def _exists(path: str) -> bool:
    return Path(path).exists() or has_braces(Path(path)) or named_split(Path(path)) is not None


def _write_obstacle(folder: str) -> str | None:
    nearest = Path(folder)
    try:
        while not nearest.exists():
            if nearest.is_symlink():
                return f"{nearest} is a link to {nearest.readlink()}, which does not exist"
            nearest = nearest.parent
        if not nearest.is_dir():
            return f"{nearest} is not a folder"
    except OSError as error:  # a parent folder is not accessible
        return f"{error.filename}: {error.strerror}"
    return None if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} is not writable"
