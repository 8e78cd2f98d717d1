"""Put an image into every region and pin it."""
