"""Sources of image bytes: a file, a member of an archive, or the manifest itself.

    photos/1.jpg                a file
    photos.tar::cats/1.jpg      a member of a tar; its path is the part before `::`
    photos.zip::cats/1.jpg      a member of a zip
    (no name, but bytes)        a Parquet or `datasets` manifest that contains the image

The name alone decides, whatever is on the disk. Paths are relative to the image root, and must
stay in it unless allowed (`slurm_jobs/formats/manifests/image_paths.py`). An error of one row is
that row's reject; a broken archive affects thousands of rows and fails the stage.

An error of the file system itself (`EIO`, `ESTALE`, a refusal that the file's mode does not
explain, a missing root folder) is not a reject: it propagates. So another attempt can read the
same image, and the data set does not change.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.preprocess.archives import (
    WHY_UNREADABLE,
    Archive,
    CompressedArchiveError,
    DamagedMemberError,
    OpenArchives,
    read_at,
)
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.regular_files import open_at_once
from slurm_jobs.formats.configs.stages import DEFAULT_MAX_IMAGE_MB
from slurm_jobs.formats.manifests.image_paths import is_within, missing_hint, normal_forms, place_of
from slurm_jobs.formats.manifests.messages import Content
from slurm_jobs.formats.tar_headers import BrokenArchiveError

_NO_SUCH_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
"""Errors of the name, not of the file system: another attempt would fail, too."""
_MAX_BYTES = DEFAULT_MAX_IMAGE_MB * 1_000_000
_LONGEST_PATH = 4096
"""Bytes; Linux's PATH_MAX."""


def too_many_bytes(name: str, num_bytes: int, max_bytes: int) -> SampleRejectedError:
    """Return the rejection of an image file that is too large to be read."""
    message = f"{name}: {num_bytes:,} bytes; max_image_mb allows {max_bytes:,}"
    return SampleRejectedError(reason="too_many_bytes", message=message)


def read_image_bytes(file: Path, *, name: str, root: Path, max_bytes: int = _MAX_BYTES) -> bytes:
    """Return the content of an image file.

    Args:
        file: Path to open.
        name: Its name in the manifest, for messages.
        root: Folder that must exist before a file counts as missing.
        max_bytes: Size above which it is not read.

    Raises:
        SampleRejectedError: the file is missing, empty, too large, or its mode forbids this user
            to read it.
        OSError: the file system failed.
    """
    try:
        with _rejecting_missing("file", name, root):
            fd = open_at_once(file)
        try:
            facts = os.fstat(fd)
            mode = facts.st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # no end, or no writer
                raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))  # as opening a socket
            if facts.st_size > max_bytes:
                raise too_many_bytes(name, facts.st_size, max_bytes)
            data = read_at(fd, 0, facts.st_size + 1)
            if len(data) > facts.st_size:  # a network file system stated an old size
                data += read_at(fd, len(data), max_bytes + 1 - len(data))
            if len(data) > max_bytes:
                raise too_many_bytes(name, len(data), max_bytes)
            return _filled(data, name)
        finally:
            os.close(fd)
    except OSError as error:
        problem = error.strerror
        if error.errno == errno.ENXIO:
            problem = "not a file, but a pipe, a socket or a device"
        elif isinstance(error, PermissionError):
            if _may_read(file):
                raise
        elif not isinstance(error, IsADirectoryError):
            raise
        message = f"{name}: {problem}"
        raise SampleRejectedError(reason="unreadable_image", message=message) from error


@contextmanager
def _rejecting_missing(what: str, name: str, root: Path) -> Iterator[None]:
    """Turn an error of the name, not of the file system, into a reject."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_SUCH_FILE or not root.is_dir():
            raise
        why = "" if error.errno == errno.ENOENT else f" ({error.strerror})"
        message = f"{name}: no such {what}{why}"
        raise SampleRejectedError(reason="missing_image", message=message) from error
    except ValueError as error:
        if isinstance(error, BrokenArchiveError):
            raise
        message = f"{name!r}: no such {what} ({error})"  # a path that no file can have
        raise SampleRejectedError(reason="missing_image", message=message) from error


def _filled(data: bytes, name: str) -> bytes:
    if not data:
        raise SampleRejectedError(reason="empty_image", message=f"{name}: zero bytes")
    return data


def _may_read(path: Path) -> bool:
    """Check whether the mode of a file lets this user read it, whatever the mount reports now."""
    facts = path.stat()
    if facts.st_uid == os.geteuid():
        return bool(facts.st_mode & stat.S_IRUSR)
    if facts.st_gid in (os.getegid(), *os.getgroups()):
        return bool(facts.st_mode & stat.S_IRGRP)
    return bool(facts.st_mode & stat.S_IROTH)


class ImageSource:
    """Reads images named by a manifest; for any number of threads."""

    def __init__(
        self,
        root: Path,
        *,
        within: Path | None = None,
        index_dir: Path | None = None,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        """Create it; nothing is read yet.

        Args:
            root: Base folder of relative paths.
            within: Another folder that may contain images; None: only the root.
            index_dir: Folder for lists of archives' members, shared with other slices; None for
                none.
            max_bytes: Size of an image file above which it is not read.
        """
        self.root = root
        self._max_bytes = max_bytes
        self._absolute_root = str(root.absolute())
        self._folders = [str(folder.absolute()) for folder in (root, within) if folder is not None]
        self._archives = OpenArchives(index_dir)

    def read(self, image: Content) -> bytes:
        """Return the content of an image file.

        Raises:
            SampleRejectedError: it is missing, empty, damaged, not readable, or outside of the
                allowed folders.
            StageConfigError: its archive is broken.
            OSError: the file system failed, or an archive was changed meanwhile.
        """
        if image.data is not None and len(image.data) > self._max_bytes:
            raise too_many_bytes(image.value, len(image.data), self._max_bytes)
        if image.data is not None:
            return _filled(image.data, image.value)
        if image.problem:
            message = f"{image.value}: {image.problem}"
            raise SampleRejectedError(reason="corrupt_image", message=message)
        if len(image.value) > _LONGEST_PATH and "::" not in image.value:
            message = f"{image.value[:40]}...: {len(image.value):,} characters, too long for a path"
            raise SampleRejectedError(reason="missing_image", message=message)
        try:
            return self._read_named(image.value)
        except SampleRejectedError as rejection:
            if rejection.reason != "missing_image":
                raise
            return self._read_normal_form(image.value, rejection)

    def _read_normal_form(self, name: str, rejection: SampleRejectedError) -> bytes:
        """Read the only file whose name is the same text in another Unicode normal form."""

        def exists(other: str) -> bool:
            try:
                file, member = self._allowed_place(other)
                return member is None and file.is_file()
            except (SampleRejectedError, OSError, ValueError):
                return False

        contents = []
        for form in normal_forms(name):
            with contextlib.suppress(SampleRejectedError):
                contents.append(self._read_named(form))
        if len(contents) == 1:
            return contents[0]
        hint = missing_hint(name, exists)
        message = f"{rejection}; {hint}" if hint else str(rejection)
        raise SampleRejectedError(reason=rejection.reason, message=message)

    def _read_named(self, name: str) -> bytes:
        file, member = self._allowed_place(name)
        if member is None:
            return read_image_bytes(file, name=name, root=self.root, max_bytes=self._max_bytes)
        try:
            with _rejecting_missing("archive", name, self.root):
                archive = self._archives.open(file)
            try:
                return _look_up(archive, member, name, max_bytes=self._max_bytes)
            except (SampleRejectedError, BrokenArchiveError):
                archive.check_table()
                raise
        except BrokenArchiveError as error:
            message = f"{file}: {error}"
            if not isinstance(error, CompressedArchiveError):
                message += "; no image of it can be trusted. Create or copy it again"
            raise StageConfigError(message) from error

    def _allowed_place(self, name: str) -> tuple[Path, str | None]:
        """Check the path that is opened: one without `..`, which a link could redirect."""
        path, member = place_of(name, self._absolute_root)
        if not any(is_within(path, folder) for folder in self._folders):
            message = f"{name}: is outside of {' and '.join(self._folders)}"
            raise SampleRejectedError(reason="image_outside", message=message)
        return Path(path), member


def _look_up(archive: Archive, member_name: str, name: str, *, max_bytes: int) -> bytes:
    member = archive.table.find(member_name.encode())
    if member is None and not archive.table.has_end:
        message = f"no member {member_name}, and the archive has no end mark: it may be truncated"
        raise BrokenArchiveError(message)
    if member is None:
        message = f"{name}: no such member of the archive"
        raise SampleRejectedError(reason="missing_image", message=message)
    if member.kind in WHY_UNREADABLE:
        message = f"{name}: {WHY_UNREADABLE[member.kind]}"
        raise SampleRejectedError(reason="unreadable_image", message=message)
    num_bytes = max(member.num_bytes, member.stored_bytes)
    if num_bytes > max_bytes:  # a zip's member is inflated to no more than it states
        raise too_many_bytes(name, num_bytes, max_bytes)
    try:
        return _filled(archive.read(member), name)
    except DamagedMemberError as error:
        message = f"{name}: {error}"
        raise SampleRejectedError(reason="corrupt_image", message=message) from error
