"""An Artifact Registry API in memory, which keeps the rules that the real one keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.registry.client import Place, Repository, same_policies
from rayfleet.registry.policy import MAX_POLICIES, Policy, Version


@dataclass
class MemoryApi:
    """``broken`` regions do not answer; ``read_only`` refuses what writes, ``forgetful`` only
    seems to do it. ``meanwhile`` is what others do, one thing each time versions are listed."""

    repositories: dict[Place, Repository] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    writes: list[Place] = field(default_factory=list)
    forgetful: bool = False
    read_only: bool = False
    held: dict[Place, tuple[Version, ...]] = field(default_factory=dict)
    meanwhile: list[Callable[[], object]] = field(default_factory=list)

    def read(self, place: Place) -> Repository | None:
        """What was set, or nothing."""
        if place.region in self.broken:
            raise Unreachable(f"{place} is down")
        return self.repositories.get(place)

    def create(
        self, place: Place, policies: Sequence[Policy] = (), *, dry_run: bool = False
    ) -> bool:
        """Make a repository."""
        if place in self.repositories:
            return False
        self._write(place)
        self.repositories[place] = Repository(
            place=place, policies=tuple(policies), policies_dry_run=dry_run
        )
        return True

    def set_policies(
        self,
        place: Place,
        policies: Sequence[Policy],
        *,
        found: Repository,
        replaced: Sequence[str] = (),
        dry_run: bool = False,
    ) -> bool:
        """Replace policies as the client does."""
        if not same_policies(self.repositories.get(place), found):
            return False
        self._write(place)
        kept = {p.id: p for p in self.repositories[place].policies if p.id not in replaced}
        after = {**kept, **{each.id: each for each in policies}}
        if len(after) > MAX_POLICIES:
            raise ToolFailed(f"{place} would have {len(after)} policies")
        if not self.forgetful:
            self.repositories[place] = replace(
                self.repositories[place],
                policies=tuple(after[name] for name in sorted(after)),
                policies_dry_run=dry_run,
            )
        return True

    def versions(self, place: Place) -> tuple[Version, ...]:
        """What the test put there. Then another operator does the next thing ``meanwhile``."""
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return self.held.get(place, ())

    def _write(self, place: Place) -> None:
        if self.read_only:
            raise ToolFailed(f"not permitted: artifactregistry.repositories.update on {place}")
        self.writes.append(place)
