"""Checks of stages: their keys, resources and trainings."""
