"""Numbers of the data in a report."""

from __future__ import annotations

import pytest


@pytest.fixture
def data(report_of):
    return report_of(num_steps=1, stopped_at=None).data[0]
