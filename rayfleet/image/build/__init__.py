"""Build the image from a checkout."""
