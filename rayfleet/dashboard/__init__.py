"""The dashboards of many clusters on one local page."""
