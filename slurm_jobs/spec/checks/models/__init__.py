"""Checks of the models, processors and layers of a training."""
