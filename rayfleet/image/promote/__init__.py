"""Move a digest between images and tags, and back."""
