"""Verbs on measurements: report, compare, scaling, tune, profile."""
