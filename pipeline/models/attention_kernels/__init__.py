"""Attention as the models here call it: by the bounds of samples and images."""
