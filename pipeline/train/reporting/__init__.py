"""What a running training reports: progress, speed, and values for trackers."""
