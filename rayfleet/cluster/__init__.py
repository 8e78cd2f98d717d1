"""Running clusters: launch, list, reach, judge."""
