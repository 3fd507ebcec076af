"""What a stage's settings must agree with: other settings, files and folders that are there."""
