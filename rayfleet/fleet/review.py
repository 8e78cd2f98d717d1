"""What is wrong, or not as safe as it could be, in a fleet file that loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote

from rayfleet.console import Console
from rayfleet.errors import RayfleetError, UsageError
from rayfleet.fleet.accelerators import ACCELERATORS
from rayfleet.fleet.configs import TEMPLATES
from rayfleet.fleet.lint.finding import Finding, printable
from rayfleet.fleet.lint.run import lint_files
from rayfleet.fleet.model import AuthMode, Cluster, Fleet, Pin, knows_tokens
from rayfleet.fleet.pins import read_pins
from rayfleet.fleet.render import lint_rendered, render_configs


def review_fleet(fleet: Fleet, *, root: Path) -> tuple[Finding, ...]:
    """Look at the pins and at every config as it would be rendered.

    Raises:
        UsageError: the pin file is broken.
    """
    pins = read_pins(fleet.outputs.pins)
    clusters = fleet.clusters.values()
    found = [*_review_pins(fleet, pins)]
    for cluster in clusters:
        found.extend(_review_cluster(cluster, pins.get(cluster.image)))
        found.extend(_review_config(fleet, pins, cluster, root))
    return tuple(found)


def review_files(names: Sequence[str]) -> tuple[Finding, ...]:
    """Look at cluster configs of Ray and KubeRay that are none of a fleet's.

    Raises:
        PrerequisiteMissing: Ray, which brings the schema, is not installed.
    """
    return lint_files([Path(name) for name in names])


def show_findings(
    found: Sequence[Finding], console: Console, *, as_json: bool, files: int = 0
) -> None:
    """Print one line per finding, or all as JSON; ``files`` were looked at, or the fleet (0)."""
    if as_json:
        console.json([finding.record for finding in found])
        return
    for finding in found:
        console.data(finding.line)
    if not found:
        what = "the fleet file, the pins and the configs are fine"
        if files:
            what = "the file is fine" if files == 1 else f"the {files} files are fine"
        console.say(f"nothing to say: {what}")


def refuse_errors(
    found: Sequence[Finding], *, again: Sequence[str] = ("invoke fleet.lint",)
) -> None:
    """Do nothing if there are only warnings; ``again`` is what to run once all is mended.

    Raises:
        UsageError: there are errors.
    """
    errors = [finding for finding in found if finding.is_error]
    if errors:
        command = " ".join((again[0], *(quote(printable(word, longest=200)) for word in again[1:])))
        raise UsageError(
            f"lint found {len(errors)} error{'s' if len(errors) != 1 else ''}",
            next_step=f"mend what is listed above, then run: {command}",
        )


def _review_pins(fleet: Fleet, pins: Mapping[str, Pin]) -> Iterator[Finding]:
    for family in fleet.images:
        pin, where = pins.get(family), f"image {family}"
        if pin is None:
            yield _warning(where, "no LATEST yet; publish it: invoke cluster-docker")
        elif not pin.digest:
            text = f"LATEST is the bare tag {pin.tag}, which can be moved; publish to pin a digest"
            yield _warning(where, text)
    for family in sorted(set(pins) - set(fleet.images)):
        yield _warning(f"image {family}", "is pinned, but the fleet file has no such image")


def _review_cluster(cluster: Cluster, pin: Pin | None) -> Iterator[Finding]:
    wants = cluster.auth.mode is AuthMode.TOKEN
    # What is published from here has a digest, and a Ray that knows tokens (2.52 and later).
    could = pin and (knows_tokens(pin.ray) if pin.ray else pin.digest)
    if cluster.tag:
        text = f"runs the fixed tag {cluster.tag} without a digest, which can be moved"
        yield _warning(cluster.name, text)
    elif not wants and could:
        yield _warning(cluster.name, "tokens are off, and its image could: auth: {mode: token}")
    elif wants and pin and not could and not pin.ray:
        text = f"nothing says which Ray {pin.tag} has, and one before 2.52 lets everybody in"
        yield _warning(cluster.name, f"{text}; publish an image from here: invoke cluster-docker")
    kind = ACCELERATORS[cluster.accelerator]
    twin = cluster.workers.get(kind.base)
    base = cluster.workers.get("base")
    capped = [one for one in (twin, base) if one and one.max_count < cluster.max_workers]
    if kind.base in kind.slices and len(capped) == 1:
        text = f"base and {kind.base} are the same slice; capping one leaves the other open"
        yield _warning(cluster.name, text)


def _review_config(
    fleet: Fleet, pins: Mapping[str, Pin], cluster: Cluster, root: Path
) -> Iterator[Finding]:
    if not cluster.tag and cluster.image not in pins:
        yield _warning(cluster.name, "its config is not checked: the image has no LATEST yet")
        return
    if cluster.region not in fleet.registries.hosts:
        yield _warning(cluster.name, "its config is not checked: the sandbox is not up")
        return
    try:
        texts = render_configs(fleet, pins, templates=root / TEMPLATES, clusters=[cluster])
    except RayfleetError as error:
        yield Finding(level="error", where=cluster.name, text=f"{error.what}: {error.why}")
        return
    for found in lint_rendered(texts[cluster.name]):
        # Its lines are nobody's: a template made them.
        yield Finding(
            level="error", where=cluster.name, rule=found.rule, key=found.key, text=found.text
        )


def _warning(where: str, text: str) -> Finding:
    return Finding(level="warning", where=where, text=text)
