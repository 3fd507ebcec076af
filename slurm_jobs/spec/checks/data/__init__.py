"""Checks of data sets, manifests and the images that they name."""
