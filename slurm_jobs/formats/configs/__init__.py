"""Configs of the built-in stages: fields, defaults and their documentation, a file a stage."""
