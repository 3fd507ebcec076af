"""Checks of a training's first seconds, before anything is staged or read."""
