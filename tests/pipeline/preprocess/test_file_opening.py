"""Files that somebody else holds, and what is not a file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from pipeline.preprocess.manifest_files import open_at_once
from tests.end_to_end.driver import wait_for
from tests.leases import leased


def test_file_with_a_lease_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"picture")
    found: list[bytes] = []

    def read() -> None:
        fd = open_at_once(path)
        found.append(os.read(fd, 100))
        os.close(fd)

    reader = threading.Thread(target=read)
    with leased(path) as is_wanted:
        reader.start()
        wait_for(is_wanted, "the reader")
        assert not found
    reader.join(60)
    assert found == [b"picture"]


def test_a_pipe_without_a_writer_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.close(open_at_once(tmp_path / "pipe"))
