"""Samples whose bytes are broken."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest

from pipeline.tools.raw_samples import BROKEN, parse


def sample_of(**members: bytes) -> memoryview:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(f"000000001.{name.replace('_', '.')}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return memoryview(stream.getvalue())


@pytest.mark.parametrize("meta", [b"", b"[]", b"[" * 100_000, b"\xff"])
def test_meta_that_is_none_is_a_broken_sample(meta):
    tokens = io.BytesIO()
    np.save(tokens, np.zeros((2, 3), np.int32))
    with pytest.raises(BROKEN):
        parse(sample_of(tokens_npy=tokens.getvalue(), meta_json=meta))
