"""The Artifact Registry API as the rest of the package sees it: values in, values out.

Only this module calls google-cloud-artifact-registry. Its methods have neither a deadline nor
retries of their own, so every call here carries both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypedDict

from rayfleet.errors import PrerequisiteMissing, RayfleetError, ToolFailed, Unreachable
from rayfleet.fleet.model import Fleet
from rayfleet.registry.policy import Policy, Version

if TYPE_CHECKING:
    from google.api_core.exceptions import GoogleAPIError
    from google.api_core.retry import Retry
    from google.cloud import artifactregistry_v1 as ar

SERVICE = "artifactregistry.googleapis.com"
CALL_SECONDS = 30.0
RETRY_SECONDS = 60.0
LOOPBACK_RETRY_SECONDS = 3.0
CREATE_SECONDS = 180.0
PAGE_SIZE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One repository of one region, and its full resource name."""

    project: str
    region: str
    repository: str

    @property
    def parent(self) -> str:
        """``projects/P/locations/REGION``."""
        return f"projects/{self.project}/locations/{self.region}"

    @property
    def name(self) -> str:
        """``projects/P/locations/REGION/repositories/REPOSITORY``."""
        return f"{self.parent}/repositories/{self.repository}"

    def __str__(self) -> str:
        return f"{self.region}/{self.repository}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """What a repository says of itself.

    ``format`` and ``mode`` are the API's names. ``policies_dry_run`` true means that its
    cleanup policies are evaluated and logged but delete nothing.
    """

    place: Place
    format: str = "DOCKER"
    mode: str = "STANDARD_REPOSITORY"
    immutable_tags: bool = False
    policies_dry_run: bool = False
    policies: tuple[Policy, ...] = ()


def same_policies(one: Repository | None, other: Repository) -> bool:
    """Whether ``one`` is there and has the policies of ``other``, in force or not alike."""
    if one is None or one.policies_dry_run != other.policies_dry_run:
        return False
    return {each.id: each for each in one.policies} == {each.id: each for each in other.policies}


class Repositories(Protocol):
    """What the registry package needs of the API."""

    def read(self, place: Place) -> Repository | None:
        """The repository, or None when there is none."""

    def create(
        self, place: Place, policies: Sequence[Policy] = (), *, dry_run: bool = False
    ) -> bool:
        """Create it for Docker images; False when another got there first."""

    def set_policies(
        self,
        place: Place,
        policies: Sequence[Policy],
        *,
        found: Repository,
        replaced: Sequence[str] = (),
        dry_run: bool = False,
    ) -> bool:
        """Set ``policies``, live or as a rehearsal; drop the ids ``replaced``; keep all others.

        False, and nothing is written, when the policies are not those of ``found`` any more.
        """

    def versions(self, place: Place) -> tuple[Version, ...]:
        """Every version in the repository."""


def artifact_registry_client(fleet: Fleet) -> GoogleRepositories:
    """The API that ``fleet`` names: its loopback address, or Google's own.

    Raises:
        Unreachable: the fleet is the sandbox's and the sandbox is not up.
        PrerequisiteMissing: Google's API is meant and this machine has no credentials.
    """
    api = fleet.registries.api
    if fleet.is_sandbox and not api:
        raise Unreachable(
            "no Artifact Registry API", why="the sandbox is not up", next_step="invoke sandbox.up"
        )
    if api:
        next_step = "invoke sandbox.up" if fleet.is_sandbox else f"see what listens on {api}"
        return GoogleRepositories(_plain_client(api), api, LOOPBACK_RETRY_SECONDS, next_step)
    return GoogleRepositories(_google_client(), SERVICE, RETRY_SECONDS, "run the same again")


class GoogleRepositories:
    """:class:`Repositories` over the client library. Safe to use from several threads."""

    def __init__(
        self,
        client: ar.ArtifactRegistryClient,
        address: str,
        retry_seconds: float,
        next_step: str,
    ) -> None:
        self._client = client
        self._address = address
        self._retry_seconds = retry_seconds
        self._next_step = next_step

    def read(self, place: Place) -> Repository | None:
        """The repository, or None when there is none."""
        message = self._message(place)
        return None if message is None else _repository_from(place, message)

    def create(
        self, place: Place, policies: Sequence[Policy] = (), *, dry_run: bool = False
    ) -> bool:
        """Create it for Docker images and wait for it; False when another got there first."""
        from google.api_core.exceptions import AlreadyExists
        from google.cloud import artifactregistry_v1 as ar

        wanted = ar.Repository(
            format_=ar.Repository.Format.DOCKER,
            cleanup_policies=_messages(policies),
            cleanup_policy_dry_run=dry_run,
        )
        with self._errors("artifactregistry.repositories.create", place):
            try:
                operation = self._client.create_repository(
                    parent=place.parent,
                    repository=wanted,
                    repository_id=place.repository,
                    **self._limits(),
                )
                operation.result(timeout=CREATE_SECONDS)  # type: ignore[no-untyped-call]
            except AlreadyExists:
                return False
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
        """Set ``policies``, live or as a rehearsal; drop the ids ``replaced``; keep all others.

        False, and nothing is written, when the policies are not those of ``found`` any more.
        The API replaces the whole map, so others' policies go back exactly as they were read.
        It has neither an etag nor a condition for an update (``Repository`` and
        ``UpdateRepositoryRequest`` of its v1 API), and its masks name no keys of a map: whoever
        writes between the look and the update, some 0.1 s, is not noticed here.
        """
        from google.cloud import artifactregistry_v1 as ar

        current = self._message(place)
        if current is None or not same_policies(_repository_from(place, current), found):
            return False
        kept = {k: v for k, v in current.cleanup_policies.items() if k not in replaced}
        wanted = ar.Repository(
            name=place.name,
            cleanup_policies={**kept, **_messages(policies)},
            cleanup_policy_dry_run=dry_run,
        )
        mask = {"paths": ["cleanup_policies", "cleanup_policy_dry_run"]}
        with self._errors("artifactregistry.repositories.update", place):
            self._client.update_repository(
                {"repository": wanted, "update_mask": mask}, **self._limits()
            )
        return True

    def versions(self, place: Place) -> tuple[Version, ...]:
        """Every version in the repository."""
        from google.cloud import artifactregistry_v1 as ar

        from rayfleet.registry.messages import version_from

        request = ar.ListDockerImagesRequest(parent=place.name, page_size=PAGE_SIZE)
        with self._errors("artifactregistry.dockerimages.list", place):
            images = self._client.list_docker_images(request, **self._limits())
            return tuple(version_from(image) for image in images)

    def _message(self, place: Place) -> ar.Repository | None:
        from google.api_core.exceptions import NotFound

        with self._errors("artifactregistry.repositories.get", place):
            try:
                return self._client.get_repository(name=place.name, **self._limits())
            except NotFound:
                return None

    def _limits(self) -> _Limits:
        return {"timeout": CALL_SECONDS, "retry": _retry(self._retry_seconds)}

    @contextmanager
    def _errors(self, permission: str, place: Place) -> Iterator[None]:
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        try:
            yield
        except GoogleAPIError as error:
            raise self._explained(error, permission, place) from error
        except GoogleAuthError as error:
            raise _no_credentials(error) from error
        except TimeoutError as error:
            raise Unreachable(
                f"waited {CREATE_SECONDS:.0f} s for {place.name} to be created",
                next_step="run the same again",
            ) from error

    def _explained(self, error: GoogleAPIError, permission: str, place: Place) -> RayfleetError:
        from google.api_core import exceptions as google

        cause = error.cause if isinstance(error, google.RetryError) else error
        why = str(getattr(cause, "message", cause)).partition("\n")[0]
        match cause:
            case google.Forbidden():
                return ToolFailed(
                    f"not permitted: {permission} on {place.name}",
                    why=why,
                    next_step=f"ask an owner of {place.project} for roles/artifactregistry.admin",
                )
            case google.Unauthorized():
                return _no_credentials(cause)
            case google.NotFound():
                what = f"{place.name} was not found"
                return ToolFailed(what, why=why, next_step="invoke registry.show")
            case google.ServiceUnavailable() | google.DeadlineExceeded():
                what = f"the Artifact Registry API at {self._address} does not answer for {place}"
                return Unreachable(what, why=why, next_step=self._next_step)
            case _:
                what = f"the Artifact Registry API refused {permission} on {place.name}"
                return ToolFailed(what, why=why)


class _Limits(TypedDict):
    timeout: float
    retry: Retry


def _retry(seconds: float) -> Retry:
    from google.api_core import exceptions as google
    from google.api_core.retry import Retry, if_exception_type

    # A create that is asked twice answers "already exists", which is what was wanted.
    passing = if_exception_type(
        google.ServiceUnavailable, google.TooManyRequests, google.InternalServerError
    )
    return Retry(predicate=passing, initial=0.25, multiplier=2.0, maximum=8.0, timeout=seconds)


def _plain_client(address: str) -> ar.ArtifactRegistryClient:
    import grpc
    from google.cloud import artifactregistry_v1 as ar
    from google.cloud.artifactregistry_v1.services.artifact_registry import transports

    # An api_endpoint alone would speak TLS; a proxy of the machine is not meant for loopback.
    channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])
    return ar.ArtifactRegistryClient(
        transport=transports.ArtifactRegistryGrpcTransport(channel=channel)
    )


def _google_client() -> ar.ArtifactRegistryClient:
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import artifactregistry_v1 as ar

    try:
        return ar.ArtifactRegistryClient()
    except GoogleAuthError as error:
        raise _no_credentials(error) from error


def _no_credentials(error: Exception) -> PrerequisiteMissing:
    return PrerequisiteMissing(
        "no credentials for Google Cloud",
        why=str(error).partition("\n")[0],
        next_step="gcloud auth application-default login",
    )


def _messages(policies: Sequence[Policy]) -> Mapping[str, ar.CleanupPolicy]:
    from rayfleet.registry.messages import policy_message

    return {policy.id: policy_message(policy) for policy in policies}


def _repository_from(place: Place, message: ar.Repository) -> Repository:
    from rayfleet.registry.messages import policy_from

    policies = message.cleanup_policies
    return Repository(
        place=place,
        format=message.format_.name,
        mode=message.mode.name,
        immutable_tags=message.docker_config.immutable_tags,
        policies_dry_run=message.cleanup_policy_dry_run,
        policies=tuple(policy_from(key, policies[key]) for key in sorted(policies)),
    )
