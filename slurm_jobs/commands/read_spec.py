"""Specs, read with the files, the Python and the profile of this machine; read-only."""

from __future__ import annotations

import functools
import importlib.util
import io
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.expand import expand_path, expand_text
from slurm_jobs.shared.manifests.image_heads import IMAGE_HEAD_BYTES
from slurm_jobs.shared.manifests.image_paths import place_of
from slurm_jobs.shared.manifests.messages import Content, ManifestRow, RowOrigin
from slurm_jobs.shared.manifests.table_files import NoTableError, TableFiles, find_table
from slurm_jobs.shared.manifests.text import MAX_BYTES, MAX_ROWS, first_rows, manifest_damage
from slurm_jobs.shared.manifests.values import RowOptions, read_row
from slurm_jobs.shared.processors.folder import read_processor
from slurm_jobs.shared.processors.image_plans import ImageRules
from slurm_jobs.shared.processors.processor_files import processor_checksums
from slurm_jobs.shared.regular_files import open_regular, read_text
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.checks.data.manifests import named_manifests
from slurm_jobs.spec.load import load_spec
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.spec_files import Beginning, Files, TableFacts

if TYPE_CHECKING:
    import pyarrow as pa


# Loader of a spec from disk, its profile and its code; read-only.


def load(
    file: Path,
    *,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    earlier: Sequence[str] = (),
    to_submit: bool = False,
) -> LoadedSpec:
    """Return the spec in `file`; with `to_submit`, also check that its run can be created.

    `earlier` are overrides of earlier commands for the same run; see `load_spec`.

    Raises:
        SpecError: with every problem found.
    """
    files = disk_files(to_write=to_submit)
    return load_spec(str(file.absolute()), files, overrides=overrides, limit=limit, earlier=earlier)


def profile_anywhere(loaded: LoadedSpec) -> ClusterProfile:
    """Return the profile for planning: `auto` is Slurm, even where there is none."""
    return loaded.profile if loaded.profile is not None else ClusterProfile()


# Sizes of images from the headers of their files, without decoding pixels.


MAX_HEADERS = 1_000
"""Files that are opened for it: about a second on a shared file system."""
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000")
"""Formats whose header has the size; other files are skipped, and the job checks them."""


def can_read_sizes() -> bool:
    """Check whether this Python has Pillow, which the install without `train` does not bring."""
    return importlib.util.find_spec("PIL") is not None


def size_of(image: Content, root: str) -> tuple[int, int] | None:
    """Return width and height of an image of a manifest row; None where they cannot be read.

    Members of archives are not read. Relative paths start from `root`, an absolute folder.
    """
    source = _source_of(image, root) if can_read_sizes() else None
    return None if source is None else read_size(source)


def head_of(image: Content, root: str) -> bytes | None:
    """Return the first bytes of an image as `size_of` finds it; None where it is not read."""
    source = _source_of(image, root)
    if not isinstance(source, Path):
        return None if source is None else source.read(IMAGE_HEAD_BYTES)
    with suppress(OSError), open_regular(source) as stream:
        return stream.read(IMAGE_HEAD_BYTES)
    return None


def _source_of(image: Content, root: str) -> Path | IO[bytes] | None:
    if image.problem:
        return None
    if image.data is not None:
        return io.BytesIO(image.data)
    file, member = place_of(image.value, root)
    try:
        return Path(file) if member is None and Path(file).is_file() else None
    except (OSError, ValueError):
        return None


def read_size(file: Path | IO[bytes]) -> tuple[int, int] | None:
    """Return width and height as the header states them; None where it cannot be read."""
    if isinstance(file, Path):
        with suppress(OSError, ValueError), open_regular(file) as stream:
            return _size_in_header(stream)
        return None
    return _size_in_header(file)


def _size_in_header(stream: IO[bytes]) -> tuple[int, int] | None:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(stream, formats=_FORMATS) as image:
                width, height = image.size
    except Exception:  # noqa: BLE001 - Pillow raises anything on a broken file; the job names it
        return None
    return (width, height) if width > 0 and height > 0 else None


# Manifests that are tables, read on the login node: columns, and whether there are rows.
#
# Uses pyarrow if installed; the login node's install does not require it.


_BATCH_ROWS = 64


def table_facts(manifest: str) -> TableFacts | None:
    """Return facts about the table at a path; None if there is none, or it cannot be read.

    These are the columns of the first file, whether any has a row, and damage.
    """
    try:
        table = find_table(Path(manifest))
    except NoTableError as error:
        return TableFacts(problem=str(error))
    except (OSError, ValueError):  # does not exist yet, or is not accessible
        return None
    if table is None or not has_pyarrow():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    names: tuple[str, ...] = ()
    for file in table.files:
        try:
            if table.kind == "parquet":
                with closing(pq.ParquetFile(file)) as parquet:
                    columns = parquet.schema_arrow.names
                    has_rows = parquet.metadata.num_rows > 0
            else:
                with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as reader:
                    columns = reader.schema.names
                    has_rows = any(batch.num_rows for batch in reader)
        except (pa.ArrowException, OSError, EOFError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                return None
            where = "" if len(table.files) == 1 else f": {file.name}"
            return TableFacts(problem=f"{where} is damaged or cut short ({error})")
        names = names or tuple(columns)
        if has_rows:
            return TableFacts(names=names, has_rows=True)
    return TableFacts(names=names)


def first_table_rows(path: Path, options: RowOptions) -> list[ManifestRow]:
    """Return the first rows of a table, read as the job reads them; none without pyarrow."""
    table = find_table(path)
    if table is None or not has_pyarrow():
        return []
    import pyarrow as pa

    from slurm_jobs.shared.manifests.tables import unread_names

    rows: list[ManifestRow] = []
    num_bytes = 0
    try:
        for names, batch in _batches(table, options):
            unread = unread_names(names, batch.schema.names, options)
            for value in batch.to_pylist():
                origin = RowOrigin(row=len(rows), line=None, manifest=path)
                rows.append(read_row(origin, value, options, unread=unread))
            num_bytes += batch.nbytes
            if len(rows) >= MAX_ROWS or num_bytes >= MAX_BYTES:
                break
    except (pa.ArrowException, OSError, EOFError, ValueError):  # the job reports what is damaged
        pass
    return rows[:MAX_ROWS]


def _batches(
    table: TableFiles, options: RowOptions
) -> Iterator[tuple[Sequence[str], pa.RecordBatch]]:
    """Yield all column names, and rows of the needed columns, a few at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from slurm_jobs.shared.manifests.tables import needed_columns

    for file in table.files:
        if table.kind == "parquet":
            with closing(pq.ParquetFile(file, pre_buffer=False, buffer_size=2**16)) as parquet:
                schema = parquet.schema_arrow
                columns = needed_columns(schema, options)
                for batch in parquet.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
                    yield schema.names, batch
            continue
        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as reader:
            columns = needed_columns(reader.schema, options)
            for whole in reader:
                for start in range(0, whole.num_rows, _BATCH_ROWS):
                    yield whole.schema.names, whole.slice(start, _BATCH_ROWS).select(columns)


def has_pyarrow() -> bool:
    """Check whether this Python can read tables."""
    return importlib.util.find_spec("pyarrow") is not None


def table_notes(spec: RunSpec) -> list[str]:
    """Return notes on tables that were not checked, because this Python has no pyarrow."""
    notes: list[str] = []
    for place, manifest in [] if has_pyarrow() else named_manifests(spec):
        with suppress(OSError, ValueError):
            if find_table(Path(manifest)) is not None:
                notes.append(
                    f"{place}: {manifest} is a table, and this Python has no pyarrow: its columns "
                    "and rows were not checked (`pip install pyarrow` here, or leave it to the job)"
                )
    return notes


# File system and Python of this machine, as the loader of specs reads them; read-only.


SMALL_BYTES = 64 * 1024
"""A longer file is not read to check whether it is empty."""
MOST_SIZES = 1000
"""Limit on the files of a folder whose sizes are read: each may be a request to a file server."""


def disk_files(*, to_write: bool = False) -> Files:
    """Return the loader's view of the real file system.

    `to_write`: also check whether runs can be created and images exist; reading a run needs
    neither.
    """
    return Files(
        read_text=lambda file: read_text(Path(file)),
        exists=lambda file: Path(file).exists(),
        expand=expand_path,
        expand_text=expand_text,
        small_text=_small_text,
        first_line=_first_line,
        beginning=_beginning,
        sizes_in=_sizes_in,
        checksums_in=_checksums_in,
        table=table_facts,
        first_rows=functools.cache(_first_rows),
        manifest_damage=functools.cache(_manifest_damage),
        is_folder=os.path.isdir,
        image_size=functools.cache(size_of),
        image_head=functools.cache(head_of),
        image_rules=functools.cache(read_image_rules),
        modules_in=_modules_in,
        has_module=_has_module,
        write_obstacle=_write_obstacle if to_write else lambda _folder: "",
        needs_images=to_write,
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
        if path.is_file():
            return first_rows(path, options)
    return []


def _manifest_damage(manifest: str, options: RowOptions) -> str:
    path = Path(manifest)
    with suppress(OSError, ValueError):
        if path.is_file() and find_table(path) is None:
            return manifest_damage(path, options)
    return ""


def read_image_rules(folder: str) -> ImageRules | None:
    """Return the rules of the image processor in a folder; None if they are unknown."""
    try:
        return read_processor(Path(folder)).images
    except (StageConfigError, OSError, LookupError, TypeError, ValueError, ArithmeticError):
        return None  # the job reports what is wrong with it


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


def _write_obstacle(folder: str) -> str:
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
    except ValueError as error:
        return str(error)
    return "" if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} is not writable"
