"""The fleet as a table: what ``fleet.list`` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rayfleet.console import Console
from rayfleet.fleet.accelerators import ACCELERATORS, BASE
from rayfleet.fleet.model import Cluster, Fleet, Pin
from rayfleet.fleet.pins import read_pins


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One cluster; ``min_workers`` has the slices with a minimum above 0."""

    name: str
    identity: str
    provider: str
    zone: str
    accelerator: str
    min_workers: Mapping[str, int]
    image: str


def overview(fleet: Fleet) -> tuple[Row, ...]:
    """One row per cluster, in fleet order.

    Raises:
        UsageError: the pin file is broken.
    """
    pins = read_pins(fleet.outputs.pins)
    return tuple(_row(cluster, pins) for cluster in fleet.clusters.values())


def show_rows(rows: Sequence[Row], console: Console, *, as_json: bool) -> None:
    """Print the rows as a table, or as JSON."""
    if as_json:
        console.json([asdict(row) for row in rows])
        return
    headers = ("cluster", "identity", "provider", "zone", "accelerator", "min workers", "image")
    console.table(headers, [_cells(row) for row in rows])


def _cells(row: Row) -> tuple[str, ...]:
    minimums = ", ".join(f"{count} {name}" for name, count in row.min_workers.items())
    return (
        row.name,
        row.identity,
        row.provider,
        row.zone,
        row.accelerator,
        minimums or "0",
        row.image,
    )


def _row(cluster: Cluster, pins: Mapping[str, Pin]) -> Row:
    base = ACCELERATORS[cluster.accelerator].base
    pin = Pin(tag=cluster.tag) if cluster.tag else pins.get(cluster.image)
    return Row(
        name=cluster.name,
        identity=cluster.identity,
        provider=cluster.provider.value,
        zone=cluster.zone,
        accelerator=cluster.accelerator,
        min_workers={
            f"{base} (base)" if key == BASE else key: count.min_count
            for key, count in cluster.workers.items()
            if count.min_count
        },
        image=f"{cluster.image}:{pin.reference}" if pin else f"{cluster.image} (no LATEST yet)",
    )
