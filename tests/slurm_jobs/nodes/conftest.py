"""Tests are no package that could be imported from."""

from __future__ import annotations
