"""Where buckets are: a region, a pair of regions, or a continent.

https://cloud.google.com/storage/docs/locations#location-mr
"""

from __future__ import annotations

_CONTINENTS = {"us": "us-", "eu": "europe-", "asia": "asia-"}
_PAIRS = {
    "nam4": ("us-central1", "us-east1"),
    "eur4": ("europe-north1", "europe-west4"),
    "asia1": ("asia-northeast1", "asia-northeast2"),
}


def holds(location: str, region: str) -> bool:
    """Whether a bucket in ``location`` (lower case) is read in ``region`` without the costs of
    another region."""
    if continent := _CONTINENTS.get(location):
        return region.startswith(continent)
    return region in (location, *_PAIRS.get(location, ()))
