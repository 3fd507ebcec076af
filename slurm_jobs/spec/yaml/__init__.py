"""YAML of specs and profiles: plain values, the place of each, and errors in plain words."""
