"""Folders that their owner has closed; root, who runs the tests at some places, may enter all."""

from __future__ import annotations

import errno
import os
import pathlib
from pathlib import Path
from typing import Any

import pytest


def close(folder: Path, monkeypatch: pytest.MonkeyPatch, *, may_enter: bool = False) -> None:
    """Let this process not list a folder; nor look at what is in it, unless it `may_enter`."""
    for name in ("listdir", "scandir"):
        _refuse(name, folder, monkeypatch, itself=True, inside=not may_enter)
    if not may_enter:
        _refuse("stat", folder, monkeypatch, itself=False, inside=True)


def _refuse(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, itself: bool, inside: bool
) -> None:
    real = getattr(os, name)

    def call(path: Any = ".", *args: Any, **options: Any) -> Any:
        at = None if isinstance(path, int) else Path(os.fspath(path))
        if at is not None and ((inside and folder in at.parents) or (itself and at == folder)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *args, **options)

    monkeypatch.setattr(os, name, call)
    if accessor := getattr(pathlib, "_NormalAccessor", None):  # Python 3.10's has the function, too
        monkeypatch.setattr(accessor, name, staticmethod(call))
