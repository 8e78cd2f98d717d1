"""A zone of Google Cloud as one cluster uses it: the paths of its TPUs, and questions that are
asked again while what goes wrong may pass, and end in an error that names whose they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from rayfleet.errors import Unreachable
from rayfleet.google_api import pages, patiently, said, service, status_of, transient
from rayfleet.waiting import Clock, SystemClock

T = TypeVar("T")

NOT_FOUND = 404
NOT_ENABLED = "API has not been used in project"
LATER = "run the same again later"


@dataclass(frozen=True, kw_only=True)
class Zone:
    """``zone`` of ``project``; errors begin with ``owner``, a cluster's identity. All methods
    raise :class:`Unreachable` when an API does not answer after a few tries, or refuses."""

    owner: str
    project: str
    zone: str
    clock: Clock = field(default_factory=SystemClock, repr=False)

    @property
    def path(self) -> str:
        """What the paths of its TPUs begin with."""
        return f"projects/{self.project}/locations/{self.zone}"

    def slice(self, name: str) -> str:
        """The path of a slice."""
        return f"{self.path}/nodes/{name}"

    def request(self, name: str) -> str:
        """The path of a queued resource."""
        return f"{self.path}/queuedResources/{name}"

    @cached_property
    def tpus(self) -> Any:
        """The ``projects.locations`` of Cloud TPU's API v2."""
        return self.ask("reach Cloud TPU", lambda: service("tpu", "v2")).projects().locations()

    def slices(self) -> list[dict[str, Any]]:
        """All slices of the zone, whoever's they are."""
        return self._of_tpus("list the TPU slices", self.tpus.nodes(), "nodes")

    def requests(self) -> list[dict[str, Any]]:
        """All queued resources of the zone, whoever's they are."""
        doing, key = "list the queued resources", "queuedResources"
        return self._of_tpus(doing, self.tpus.queuedResources(), key)

    def pages(self, doing: str, method: Any, key: str, **asked: str) -> list[dict[str, Any]]:
        """What ``key`` has on all pages of ``method.list``.

        Raises:
            Unreachable: also where Google answers for a part of the places only.
        """
        return self.ask(doing, lambda: pages(method, key, asked))

    def get(self, doing: str, query: Callable[[], Any]) -> dict[str, Any] | None:
        """The answer to the request that ``query`` makes; None when there is no such thing."""

        def answer() -> dict[str, Any] | None:
            try:
                found: dict[str, Any] = query().execute()
            except Exception as error:
                if status_of(error) == NOT_FOUND:
                    return None
                raise
            return found

        return self.ask(doing, answer)

    def ask(self, doing: str, question: Callable[[], T]) -> T:
        """What ``question`` returns; ``doing`` says what it is for, as in "cannot ..."."""
        try:
            return patiently(question, self.clock)
        except Exception as error:
            raise Unreachable(
                f"{self.owner}: cannot {doing}",
                why=said(error),
                next_step=LATER if transient(error) else "invoke doctor",
            ) from error

    def _of_tpus(self, doing: str, method: Any, key: str) -> list[dict[str, Any]]:
        try:
            return self.pages(doing, method, key, parent=self.path)
        except Unreachable as error:
            if error.why.startswith("403: ") and NOT_ENABLED in error.why:
                return []  # a project without TPUs
            raise
