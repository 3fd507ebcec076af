"""Reports of a running training: progress, speed, and values for trackers."""
