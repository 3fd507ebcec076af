"""What a report says, as plain values: made by `numbers` and `findings`, shown by the renderers."""
