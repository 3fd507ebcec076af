"""What the verbs do, as functions that Python code can call too."""
