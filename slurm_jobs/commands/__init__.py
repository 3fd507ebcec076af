"""Functions behind the verbs, which Python code can call too."""
