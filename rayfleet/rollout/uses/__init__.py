"""Which images are in use, and by whom: what no cleanup policy may take."""
