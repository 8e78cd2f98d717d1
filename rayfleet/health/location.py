"""Where buckets are: a region, a pair of regions, or a continent.

https://cloud.google.com/storage/docs/locations#location-mr
"""

from __future__ import annotations

from collections.abc import Iterator

from rayfleet.health.sight import Finding, Sight

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


def bucket_elsewhere(sight: Sight) -> Iterator[Finding]:
    """Every byte between regions is paid for."""
    cluster, place = sight.cluster, sight.bucket
    if place is None:
        return
    remedy = f"change bucket: of {cluster.name} in the fleet file; then: invoke update-configs"
    if not place:
        yield Finding(state="no bucket", found=f"there is no gs://{cluster.bucket}", remedy=remedy)
    elif not holds(place, cluster.region):
        yield Finding(
            state="bucket of another region",
            found=f"gs://{cluster.bucket} is in {place}, the cluster in {cluster.region}",
            remedy=remedy,
        )
