"""The layers of an image: out of the engine, compressed once, kept in a cache."""
