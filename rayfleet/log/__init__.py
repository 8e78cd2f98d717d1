"""Follow logs of many heads."""
