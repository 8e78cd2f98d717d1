"""A cluster config as rules see it: values of the right type or none, and where they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rayfleet.fleet.document import Document, Trail, Value, dotted
from rayfleet.fleet.lint.finding import Finding, Level, printable
from rayfleet.fleet.lint.secret_forms import without_secrets

ROLES = ("head", "worker")
TYPES = "available_node_types"
COMMANDS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)
TYPE_COMMANDS = ("initialization_commands", "worker_setup_commands")
# Of these, Ray's launcher starts nothing: a head that runs already reads such a config.
NOT_LAUNCHED = frozenset(
    {"fake_multinode", "fake_multinode_docker", "kuberay", "readonly", "spark"}
)

Text = tuple[Trail, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One document of a file; ``defaults`` is what Ray fills in for its provider.

    The file may hold anything anywhere: what has the wrong type is left to shape.py.
    """

    document: Document
    defaults: Mapping[str, Value]

    def get(self, *trail: str | int) -> Value:
        """The value at ``trail``, or None."""
        found: Value = self.document.value
        for key in trail:
            if isinstance(found, dict) and isinstance(key, str):
                found = found.get(key)
            elif isinstance(found, list) and isinstance(key, int) and key < len(found):
                found = found[key]
            else:
                return None
        return found

    def mapping(self, *trail: str | int) -> dict[str, Value]:
        """The mapping at ``trail``, or an empty one."""
        found = self.get(*trail)
        return found if isinstance(found, dict) else {}

    def items(self, *trail: str | int) -> list[Value]:
        """The list at ``trail``, or an empty one."""
        found = self.get(*trail)
        return found if isinstance(found, list) else []

    def string(self, *trail: str | int) -> str:
        """The text at ``trail``, or an empty one."""
        found = self.get(*trail)
        return found if isinstance(found, str) else ""

    def integer(self, *trail: str | int) -> int | None:
        """The whole number at ``trail``, or None."""
        found = self.get(*trail)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    @property
    def provider(self) -> str:
        """The type of the provider, or nothing."""
        return self.string("provider", "type")

    @property
    def launched(self) -> bool:
        """True where ``ray up`` makes the cluster."""
        return bool(self.provider) and self.provider not in NOT_LAUNCHED

    @property
    def in_docker(self) -> bool:
        """True where Ray runs its commands in a container."""
        docker = self.mapping("docker")
        return any(docker.get(key) for key in ("image", "head_image", "worker_image"))

    @property
    def node_types(self) -> dict[str, Value]:
        """The node types, by Ray's own defaults where the file has none."""
        own = self.document.value.get(TYPES, self.defaults.get(TYPES))
        return own if isinstance(own, dict) else {}

    @property
    def head_type(self) -> str:
        """The head's node type, by Ray's own default where the file names none."""
        own = self.document.value.get("head_node_type", self.defaults.get("head_node_type"))
        return own if isinstance(own, str) else ""

    def limit_of(self, name: str, key: str) -> int | None:
        """``min_workers`` or ``max_workers`` of a node type, if it says one."""
        one = self.node_types.get(name)
        found = one.get(key) if isinstance(one, dict) else None
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def commands(self, *keys: str) -> Iterator[Text]:
        """Every command that stands below ``keys`` (default: all), those of node types too."""
        places: list[Trail] = [(key,) for key in keys or COMMANDS]
        for name in self.mapping(TYPES):
            places += [(TYPES, name, key) for key in TYPE_COMMANDS if not keys or key in keys]
        for place in places:
            yield from self._texts(place)

    def options(self, role: str) -> list[Text]:
        """What `docker run` gets for the head or for workers; those of node types too."""
        found = [*self._texts(("docker", "run_options"))]
        found += self._texts(("docker", f"{role}_run_options"))
        for name in self.mapping(TYPES) if role == "worker" else ():
            found += self._texts((TYPES, name, "docker", "worker_run_options"))
        return found

    def images(self) -> Iterator[Text]:
        """Every image that the config names."""
        places: list[Trail] = [("docker", f"{role}image") for role in ("", "head_", "worker_")]
        places += [(TYPES, name, "docker", "worker_image") for name in self.mapping(TYPES)]
        for place in places:
            if text := self.string(*place):
                yield place, text

    def texts(self) -> Iterator[Text]:
        """Every text of the file that is no key, in no order."""
        waiting: list[tuple[Trail, Value]] = [((), self.document.value)]
        while waiting:
            trail, value = waiting.pop()
            if isinstance(value, str):
                yield trail, value
            elif isinstance(value, dict):
                waiting += [((*trail, key), item) for key, item in value.items()]
            elif isinstance(value, list):
                waiting += [((*trail, index), item) for index, item in enumerate(value)]

    def error(self, rule: str, trail: Trail, text: str) -> Finding:
        """What keeps the cluster from working, or does harm."""
        return self._finding("error", rule, trail, text)

    def warning(self, rule: str, trail: Trail, text: str) -> Finding:
        """What works, but not as safely, cheaply or surely as it could."""
        return self._finding("warning", rule, trail, text)

    def _finding(self, level: Level, rule: str, trail: Trail, text: str) -> Finding:
        number = self.document.problem(trail, text).line
        key, text = printable(dotted(trail)), without_secrets(text)
        return Finding(
            level=level,
            rule=rule,
            where=f"{self.document.shown}:{number}",
            file=self.document.shown,
            number=number,
            key=key,
            text=f"{key}: {text}" if key else text,
        )

    def _texts(self, place: Trail) -> Iterator[Text]:
        for index, item in enumerate(self.items(*place)):
            if isinstance(item, str):
                yield (*place, index), item
