"""Images of a row: read, planned by their sizes, then decoded and processed as planned.

Planning decodes nothing, so a row that is too long costs no decoding; its pixels follow from
the plan. May run in many threads.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.preprocess.archives import (
    WHY_UNREADABLE,
    Archive,
    BrokenArchiveError,
    CompressedArchiveError,
    DamagedMemberError,
    OpenArchives,
    read_at,
)
from pipeline.preprocess.images.decode import (
    SIDEWAYS,
    decode_jpeg,
    decode_upright,
    open_image,
    orientation_of,
    read_upright_size,
    turn_upright,
)
from pipeline.preprocess.images.resize import (
    Resize,
    Target,
    cut_out,
    jpeg_denominator,
    resize_image,
    resize_pixels,
)
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.shared.configs.stages import (
    DEFAULT_IMAGE_DECODING,
    DEFAULT_MAX_IMAGE_MB,
    ImageDecoding,
)
from slurm_jobs.shared.errors import StageConfigError, StageError
from slurm_jobs.shared.manifests.image_paths import is_within, missing_hint, normal_forms, place_of
from slurm_jobs.shared.manifests.messages import Content, ManifestRow
from slurm_jobs.shared.processors.folder import ProcessorInfo
from slurm_jobs.shared.processors.image_plans import ImagePlan, Size, UnfitImageError
from slurm_jobs.shared.regular_files import open_at_once

# Image files to uint8 RGB in the size that the model needs.
#
# `load_pixels` is the only path from bytes to pixels. An error of the file system itself
# (`EIO`, `ESTALE`, a refusal that the file's mode does not explain, a missing root folder) is not
# a reject: it propagates. So another attempt can read the same image, and the data set does not
# change.


_NO_SUCH_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
"""Errors of the name, not of the file system: another attempt would fail, too."""
_JPEG_FORMATS = frozenset({"JPEG", "MPO"})
"""MPO: a JPEG followed by further images, as phones write them."""
_MAX_BYTES = DEFAULT_MAX_IMAGE_MB * 1_000_000


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


def load_pixels(
    data: bytes,
    *,
    target: Target,
    decoding: ImageDecoding,
    max_pixels: int,
    name: str,
) -> np.ndarray:
    """Decode, turn upright and resize to the `target` for the upright image.

    It returns uint8 [height, width, 3]. The same bytes give the same pixels, whatever the thread
    or processor.

    Raises:
        SampleRejectedError: not an image, broken, of an unknown value range, or of too many
            pixels; or the error of `target`.
        MemoryError: not the image's fault.
    """
    image = open_image(data, max_pixels=max_pixels, name=name)
    if decoding != "exact" and image.format in _JPEG_FORMATS and image.mode == "RGB":
        pixels = _load_jpeg(data, image, target, decoding)
        if pixels is not None:
            return pixels
    upright = decode_upright(image, name)
    resize = target(*upright.size)
    if decoding == "exact":
        return resize_image(upright, resize)
    return resize_pixels(np.array(upright), resize, decoding)


def _load_jpeg(
    data: bytes, image: Image.Image, target: Target, decoding: ImageDecoding
) -> np.ndarray | None:
    """Decode a colour JPEG by libjpeg-turbo, as small as allowed; None where Pillow must decide.

    It is resized as stored and then turned, because fewer pixels are turned.
    """
    width, height = image.size
    orientation = orientation_of(image)
    is_sideways = orientation in SIDEWAYS
    resize = target(height, width) if is_sideways else target(width, height)
    stored = replace(resize, crop=None)
    if is_sideways:
        stored = replace(stored, width=resize.height, height=resize.width)
    denominator = jpeg_denominator(width, height, stored, decoding)
    decoded = decode_jpeg(data, width=width, height=height, denominator=denominator)
    if decoded is None:
        return None
    extent = (width / denominator, height / denominator)
    turned = turn_upright(resize_pixels(decoded, stored, decoding, extent=extent), orientation)
    return cut_out(turned, resize.crop)


# Sources of image bytes: a file, a member of an archive, or the manifest itself.
#
#     photos/1.jpg                a file
#     photos.tar::cats/1.jpg      a member of a tar; its path is the part before `::`
#     photos.zip::cats/1.jpg      a member of a zip
#     (no name, but bytes)        a Parquet or `datasets` manifest that contains the image
#
# The name alone decides, whatever is on the disk. Paths are relative to the image root, and must
# stay in it unless allowed (`slurm_jobs/shared/manifests/image_paths.py`). An error of one row is
# that row's reject; a broken archive affects thousands of rows and fails the stage.


_LONGEST_PATH = 4096
"""Bytes; Linux's PATH_MAX."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedImage:
    """Image of a row that is not decoded yet."""

    name: str
    """Its name in the manifest."""
    data: bytes
    """Content of the file."""
    size: Size
    """Width and height of the upright image."""
    plan: ImagePlan


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedImages:
    """Image side of a sample."""

    images: tuple[np.ndarray, ...]
    """uint8 [height, width, 3] each: stored arrays of all images of the row, in their order."""
    original_sizes: tuple[Size, ...]
    """(width, height) of each image of the row, upright."""
    stored_sizes: tuple[tuple[Size, ...], ...]
    """(width, height) of each stored array of each image of the row."""

    @property
    def num_pixels(self) -> int:
        """Pixels of all arrays."""
        return sum(image.shape[0] * image.shape[1] for image in self.images)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowImages:
    """Reads images of manifest rows and processes them as a processor would."""

    processor: ProcessorInfo
    source: ImageSource
    max_pixels: int
    decoding: ImageDecoding = DEFAULT_IMAGE_DECODING

    def plan(self, row: ManifestRow) -> tuple[PlannedImage, ...]:
        """Plan the row's images from their files' headers.

        Raises:
            SampleRejectedError: an image cannot be used; the error has the reason.
            StageConfigError: an image is in a broken archive.
            StageError: the file system failed.
            MemoryError: naming row and image.
        """
        planned = []
        for image in row.images:
            name = image.value
            with _naming_what_lacks_memory(row, name):
                try:
                    data = self.source.read(image)
                except OSError as error:
                    message = f"{row.origin}: an image cannot be read: {error}"
                    raise StageError(message) from error
                size = read_upright_size(data, max_pixels=self.max_pixels, name=name)
            stated = f"{name}: {size[0]} x {size[1]} pixels"
            try:
                plan = self.processor.images.plan(size)
            except UnfitImageError as error:
                message = f"{stated}: {error}"
                raise SampleRejectedError(reason="unfit_size", message=message) from error
            # so thin that it would be huge before it is cropped
            resizes = (resized for recipe in plan.recipes for resized in recipe.resizes)
            width, height = max(resizes, key=math.prod)
            if width * height > max(self.max_pixels, plan.num_pixels):
                message = (
                    f"{stated}, resized to {width} x {height} before the middle is cut out; "
                    f"max_pixels is {self.max_pixels}"
                )
                raise SampleRejectedError(reason="too_many_pixels", message=message)
            planned.append(PlannedImage(name=name, data=data, size=size, plan=plan))
        return tuple(planned)

    def make(self, row: ManifestRow, planned: tuple[PlannedImage, ...]) -> EncodedImages:
        """Decode and process the row's images as planned.

        Raises:
            SampleRejectedError: an image cannot be used; the error has the reason.
            MemoryError: naming row and image.
        """
        images: list[np.ndarray] = []
        for image in planned:
            with _naming_what_lacks_memory(row, image.name):
                images += self._make_image(image)
        return EncodedImages(
            images=tuple(images),
            original_sizes=tuple(image.size for image in planned),
            stored_sizes=tuple(
                tuple(recipe.size for recipe in image.plan.recipes) for image in planned
            ),
        )

    def _make_image(self, planned: PlannedImage) -> list[np.ndarray]:
        first_sizes = {recipe.resizes[:1] for recipe in planned.plan.recipes}
        begun: dict[tuple[Size, ...], Image.Image]
        if self.decoding == "exact" or () in first_sizes:
            opened = open_image(planned.data, max_pixels=self.max_pixels, name=planned.name)
            upright = decode_upright(opened, planned.name)
            _check_decoded(planned, upright.size)
            begun = {(): upright}
        else:
            begun = {size: self._load(planned, *size) for size in first_sizes}
        return carry_out(planned.plan, begun, resample=self.processor.resample)

    def _load(self, planned: PlannedImage, size: Size) -> Image.Image:
        """Decode an image for a target size, no larger than needed."""

        def target(width: int, height: int) -> Resize:
            _check_decoded(planned, (width, height))
            return Resize(width=size[0], height=size[1], resample=self.processor.resample)

        pixels = load_pixels(
            planned.data,
            target=target,
            decoding=self.decoding,
            max_pixels=self.max_pixels,
            name=planned.name,
        )
        return Image.fromarray(pixels)


def _check_decoded(planned: PlannedImage, size: Size) -> None:
    """Refuse an image whose decoded size differs from the one that was planned."""
    if size != planned.size:
        (width, height), (found_width, found_height) = planned.size, size
        message = (
            f"{planned.name}: states {width} x {height} pixels, but decodes to "
            f"{found_width} x {found_height}"
        )
        raise SampleRejectedError(reason="corrupt_image", message=message)


def carry_out(
    plan: ImagePlan, begun: Mapping[tuple[Size, ...], Image.Image], *, resample: int
) -> list[np.ndarray]:
    """Return the arrays of a plan for an image: uint8 [height, width, 3] each.

    `begun` has the upright RGB image after some resizes, keyed by them: after none (`()`), or
    after the first ones of all recipes.
    """
    resized = dict(begun)
    arrays = []
    for recipe in plan.recipes:
        for num_done, size in enumerate(recipe.resizes):
            before, after = recipe.resizes[:num_done], recipe.resizes[: num_done + 1]
            if after not in resized:  # all tiles come from the same image
                resized[after] = resized[before].resize(size, Image.Resampling(resample))
        whole = resized[recipe.resizes]
        arrays.append(np.asarray(whole if recipe.box is None else whole.crop(recipe.box)))
    return arrays


@contextmanager
def _naming_what_lacks_memory(row: ManifestRow, name: str) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        message = f"{row.origin}: {name}: not enough memory to decode and resize it"
        raise MemoryError(message) from error
