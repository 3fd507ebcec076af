"""Sources of image bytes: a file, a member of an archive, or the manifest itself.

    photos/1.jpg                a file
    photos.tar::cats/1.jpg      a member of a tar; its path is the part before `::`
    photos.zip::cats/1.jpg      a member of a zip
    (no name, but bytes)        a Parquet or `datasets` manifest that contains the image

The name alone decides, whatever is on the disk. Paths are relative to the image root, and must
stay in it unless allowed (`slurm_jobs/common/image_places.py`). An error of one row is that
row's reject; a broken archive affects thousands of rows and fails the stage.
"""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

from pipeline.preprocess.archives.member_table import (
    WHY_UNREADABLE,
    BrokenArchiveError,
    CompressedArchiveError,
    Member,
)
from pipeline.preprocess.archives.reading import Archive, OpenArchives
from pipeline.preprocess.archives.zip_members import DamagedMemberError
from pipeline.preprocess.images import read_image_bytes
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.image_places import (
    lies_within,
    missing_hint,
    normal_forms,
    place_of,
)
from slurm_jobs.common.manifests.rows import Content

_LONGEST_PATH = 4096
"""Bytes; Linux's PATH_MAX."""
_NO_SUCH_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})


class ImageSource:
    """Reads images named by a manifest; for any number of threads."""

    def __init__(
        self, root: Path, *, within: Path | None = None, index_dir: Path | None = None
    ) -> None:
        """Create it; nothing is read yet.

        Args:
            root: Base folder of relative paths.
            within: Another folder that may contain images; None: only the root.
            index_dir: Folder for lists of archives' members, shared with other slices; None for
                none.
        """
        self.root = root
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
        """Read the only file whose name is the same text in another Unicode normal form.

        Raises:
            SampleRejectedError: there is none, or two; the message describes the name.
        """
        contents = []
        for form in normal_forms(name):
            with contextlib.suppress(SampleRejectedError):
                contents.append(self._read_named(form))
        if len(contents) == 1:
            return contents[0]
        hint = missing_hint(name, self._exists)
        raise SampleRejectedError(
            reason=rejection.reason, message=f"{rejection}{'; ' if hint else ''}{hint}"
        )

    def _exists(self, name: str) -> bool:
        try:
            file, member = self._allowed_place(name)
            return member is None and file.is_file()
        except (SampleRejectedError, OSError, ValueError):
            return False

    def _read_named(self, name: str) -> bytes:
        file, member = self._allowed_place(name)
        if member is None:
            return read_image_bytes(file, name=name, root=self.root)
        try:
            return self._read_member(file, member, name)
        except BrokenArchiveError as error:
            message = f"{file}: {error}"
            if not isinstance(error, CompressedArchiveError):
                message += "; no image of it can be trusted. Create or copy it again"
            raise StageConfigError(message) from error

    def _allowed_place(self, name: str) -> tuple[Path, str | None]:
        """Check the path that is opened: one without `..`, which a link could redirect."""
        path, member = place_of(name, self._absolute_root)
        if not any(lies_within(path, folder) for folder in self._folders):
            message = f"{name}: is outside of {' and '.join(self._folders)}"
            raise SampleRejectedError(reason="image_outside", message=message)
        return Path(path), member

    def _read_member(self, file: Path, member_name: str, name: str) -> bytes:
        archive = self._open(file, name)
        try:
            return _look_up(archive, member_name, name)
        except (SampleRejectedError, BrokenArchiveError):
            archive.check_table()
            raise

    def _open(self, file: Path, name: str) -> Archive:
        try:
            return self._archives.open(file)
        except OSError as error:
            if error.errno not in _NO_SUCH_FILE or not self.root.is_dir():
                raise
            why = "" if error.errno == errno.ENOENT else f" ({error.strerror})"
            message = f"{name}: no such archive{why}"
            raise SampleRejectedError(reason="missing_image", message=message) from error
        except ValueError as error:
            if isinstance(error, BrokenArchiveError):
                raise
            message = f"{name!r}: no such archive ({error})"  # a path that no file can have
            raise SampleRejectedError(reason="missing_image", message=message) from error


def _look_up(archive: Archive, member_name: str, name: str) -> bytes:
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
    return _filled(_member_bytes(archive, member, name), name)


def _member_bytes(archive: Archive, member: Member, name: str) -> bytes:
    try:
        return archive.read(member)
    except DamagedMemberError as error:
        message = f"{name}: {error}"
        raise SampleRejectedError(reason="corrupt_image", message=message) from error


def _filled(data: bytes, name: str) -> bytes:
    if not data:
        raise SampleRejectedError(reason="empty_image", message=f"{name}: zero bytes")
    return data
