"""Files compared with what the hub says of them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pipeline.download.file_checksums import damage
from pipeline.download.repository_plan import HubFile

TEXT = b"what git hash-object hashes\n"
LARGE = HubFile(name="f", num_bytes=28, sha256=hashlib.sha256(TEXT).hexdigest(), git_blob="pointer")
SMALL = HubFile(
    name="f", num_bytes=28, sha256=None, git_blob=hashlib.sha1(b"blob 28\0" + TEXT).hexdigest()
)


@pytest.mark.parametrize("file", [LARGE, SMALL])
def test_one_changed_or_missing_byte_is_found(tmp_path: Path, file: HubFile) -> None:
    path = tmp_path / "f"
    path.write_bytes(TEXT)
    assert damage(path, file) is None
    path.write_bytes(TEXT.replace(b"w", b"W"))
    assert "its checksum is" in str(damage(path, file))
    path.write_bytes(TEXT[1:])
    assert damage(path, file) == "it has 27 bytes instead of 28"
