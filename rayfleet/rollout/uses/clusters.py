"""Ask one cluster which images it needs: its nodes at the cloud, its head over SSH."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from shlex import quote

from rayfleet.cluster.config import LaunchConfig, read_launch_config
from rayfleet.cluster.container import ASK_SECONDS, image_of
from rayfleet.cluster.lifecycle import brief
from rayfleet.cluster.nodes import Nodes, address_of
from rayfleet.cluster.started import CONFIG, RECORD
from rayfleet.errors import RayfleetError, Unreachable
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.project import Project
from rayfleet.registry.uses import Kind, Unknown, Use, Uses
from rayfleet.rollout.uses.text import images_in
from rayfleet.worker.model import short_name
from rayfleet.worker.queue import Queue, in_google

ASK_TIMEOUT = 60.0  # seconds for all questions to one head

BOOTSTRAP = "~/ray_bootstrap_config.yaml"
"""What the head's autoscaler starts workers from (Ray 2.60)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Asks the clusters of ``fleet``. Changes nothing."""

    project: Project
    fleet: Fleet

    def ask(self, cluster: Cluster) -> Uses:
        """What ``cluster`` runs, and what its head would start more nodes from.

        What cannot be found out is in ``unknown``, beside all that could.
        """
        known: list[Use] = []
        try:
            self._ask(cluster, known)
        except RayfleetError as error:
            return Uses(
                known=(*known, *self._remembered(cluster)), unknown=(_told(cluster, error),)
            )
        return Uses(known=tuple(known))

    def _ask(self, cluster: Cluster, known: list[Use]) -> None:
        config = read_launch_config(self.fleet, cluster)
        known.extend(_of_added(cluster, config))
        nodes = Nodes(config)
        everything = nodes.everything()
        if not everything:
            return
        digests = Counter(nodes.image_digest(node) for node in everything)
        nameless = digests.pop("", 0)
        for digest, count in digests.items():
            by = f"{count} node{'s' if count > 1 else ''} of {cluster.name}"
            known.append(Use(by=by, kind=Kind.NODE, digest=digest, region=cluster.region))
        head = nodes.head()
        if not head and nameless:
            raise Unreachable(
                f"{cluster.name} has {len(everything)} nodes and no head that could say what they"
                " run",
                next_step=f"invoke stop --cluster {cluster.name}",
            )
        if head:
            self._ask_head(cluster, config, nodes.address(head), known, satisfied=not nameless)

    def _ask_head(
        self,
        cluster: Cluster,
        config: LaunchConfig,
        host: str,
        known: list[Use],
        *,
        satisfied: bool,
    ) -> None:
        from rayfleet.cluster.head import Head

        with Head.open(address_of(self.project, self.fleet, cluster, config, host)) as head:
            answer = head.run(_question(config.container), timeout=ASK_TIMEOUT)
        said = tuple(
            images_in(
                self.fleet,
                answer.stdout,
                by=f"the head of {cluster.name}",
                kind=Kind.NODE,
                region=cluster.region,
            )
        )
        known.extend(said)
        if not said and not satisfied:
            raise Unreachable(
                f"the head of {cluster.name} does not say which image it runs",
                why=answer.stderr.strip()[-200:],
                next_step=f"invoke restart --cluster {cluster.name}",
            )

    def _remembered(self, cluster: Cluster) -> tuple[Use, ...]:
        """What it was last started with from here, which is better than nothing."""
        path = self.project.state / "started" / f"{cluster.identity}.yaml"
        try:
            text = path.read_text(errors="replace")
        except OSError:
            return ()
        by = f"the last start of {cluster.name}"
        found = images_in(self.fleet, text, by=by, kind=Kind.ROLLOUT, region=cluster.region)
        return tuple(found)


def _question(container: str) -> str:
    """A line for a head, which prints everything that may name an image."""
    parts = [f"cat {path} 2>/dev/null; echo" for path in (RECORD, CONFIG, BOOTSTRAP)]
    if container:
        named = f"docker inspect --format '{{{{.Image}}}}' {quote(container)}"
        # A tag may have moved since: the second says what the container was really made of.
        parts += [
            f"timeout {ASK_SECONDS} {image_of(container)} 2>/dev/null",
            f"timeout {ASK_SECONDS} docker image inspect --format '{{{{json .RepoDigests}}}}' "
            f'"$(timeout {ASK_SECONDS} {named})" 2>/dev/null',
        ]
    return "; ".join((*parts, "true"))


def _of_added(cluster: Cluster, config: LaunchConfig) -> list[Use]:
    """What workers run that Ray did not make; those still in Google's queue begin with theirs."""
    if not in_google(config):
        return []
    return [
        Use(
            by=f"the added worker {short_name(config.identity, worker.name)} of {cluster.name}",
            kind=Kind.NODE,
            digest=worker.digest,
            tag="" if worker.digest else worker.tag,
            region=cluster.region,
        )
        for worker in Queue(config).all()
        if worker.image
    ]


def _told(cluster: Cluster, error: RayfleetError) -> Unknown:
    return Unknown(
        by=cluster.name,
        why=brief(error),
        region=cluster.region,
        next_step=error.next_step or f"invoke status --cluster {cluster.name}",
    )
