"""Wasted hours of a stage in a report."""

from __future__ import annotations


def efficiency_of(report, name):
    return next(stage for stage in report.efficiency if stage.stage == name)


def hours_of(report, name, resource="cpu_hours"):
    waste = efficiency_of(report, name).waste
    return {each.kind: getattr(each, resource).value for each in waste}
