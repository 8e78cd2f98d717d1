"""A Google Cloud on loopback, for tests and rehearsals.

The parts of Compute Engine v1, Cloud TPU v2 and v2alpha1, Resource Manager v1, IAM v1 and Secret
Manager v1 that Ray and rayfleet use, as REST. Requests are checked against the discovery
documents of google-api-python-client. Nothing of rayfleet imports this package: tests, tasks and
Ray (by the provider's name in a config) do.
"""
