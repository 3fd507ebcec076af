"""Readers that can resume in the middle of an epoch, one file each; see `going_on.Resumable`."""
