"""An emulated Google Cloud for every test of this folder."""

from tests.support.google import google

__all__ = ["google"]
