"""A client of the OCI Distribution API."""
