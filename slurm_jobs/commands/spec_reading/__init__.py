"""Specs on this machine: loader, and the files, images and tables that it reads."""
