"""Folder of images, from which `init` makes a manifest."""
