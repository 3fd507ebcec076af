"""Features of images, where transformers would wait for the device or do more than is needed."""
