"""The methods of the sandbox's Artifact Registry API, on the client library's own messages.

What is not here answers UNIMPLEMENTED, as gRPC does by itself.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from rayfleet.registry.policy import Version
from rayfleet.sandbox.repository_book import (
    Refused,
    RepositoryBook,
    check_policies,
    check_repository_id,
)
from rayfleet.sandbox.sweeper import Shelves, split_name

if TYPE_CHECKING:
    import grpc
    from google.cloud import artifactregistry_v1 as ar
    from google.longrunning import operations_pb2

T = TypeVar("T")

SERVICE = "google.devtools.artifactregistry.v1.ArtifactRegistry"
OPERATIONS = "google.longrunning.Operations"
DEFAULT_PAGE = 100
MAX_PAGE = 1000
EDITABLE = frozenset({"cleanup_policies", "cleanup_policy_dry_run", "description", "labels"})
_LOCATION = re.compile(r"projects/([^/]+)/locations/([^/]+)")
_REPOSITORY = re.compile(r"projects/([^/]+)/locations/([^/]+)/repositories/([^/]+)")


class ArtifactRegistryService:
    """One project with its regions. Every method raises :class:`Refused` or answers."""

    def __init__(
        self,
        project: str,
        book: RepositoryBook,
        shelves: Shelves,
        *,
        on_policies: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_policies`` is called after policies were set."""
        self._project = project
        self._book = book
        self._shelves = shelves
        self._on_policies = on_policies
        # Every operation is done when it is returned, so none has to outlive the process.
        self._operations: dict[str, operations_pb2.Operation] = {}

    def get_repository(self, request: ar.GetRepositoryRequest) -> ar.Repository:
        """The repository, or NOT_FOUND."""
        return self._book.get(self._checked(_REPOSITORY, request.name))

    def list_repositories(self, request: ar.ListRepositoriesRequest) -> ar.ListRepositoriesResponse:
        """The repositories of a region, by name, in pages."""
        from google.cloud import artifactregistry_v1 as ar

        _refuse_options(request)
        found = self._book.under(self._checked(_LOCATION, request.parent))
        page, token = _page(found, lambda each: each.name, request.page_size, request.page_token)
        return ar.ListRepositoriesResponse(repositories=page, next_page_token=token)

    def create_repository(self, request: ar.CreateRepositoryRequest) -> operations_pb2.Operation:
        """Create a Docker repository; the operation is done at once."""
        from google.cloud import artifactregistry_v1 as ar

        parent = self._checked(_LOCATION, request.parent)
        check_repository_id(request.repository_id)
        if request.repository.format_ != ar.Repository.Format.DOCKER:
            raise Refused("INVALID_ARGUMENT", "the sandbox holds repositories of format DOCKER")
        name = f"{parent}/repositories/{request.repository_id}"
        now = datetime.now(UTC)
        repository = ar.Repository(
            request.repository,
            name=name,
            mode=ar.Repository.Mode.STANDARD_REPOSITORY,
            create_time=now,
            update_time=now,
            registry_uri=self._uri(name),
        )
        _set_policies(repository, repository.cleanup_policies)
        self._book.add(repository)
        if repository.cleanup_policies:
            self._on_policies()
        return self._done(parent, ar.Repository.pb(repository))

    def update_repository(self, request: ar.UpdateRepositoryRequest) -> ar.Repository:
        """Replace the fields that the mask names; a map is replaced as a whole."""
        name = self._checked(_REPOSITORY, request.repository.name)
        paths = list(request.update_mask.paths)
        unknown = sorted(set(paths) - EDITABLE)
        if not paths or unknown:
            raise Refused("INVALID_ARGUMENT", f"update_mask: {', '.join(unknown) or 'is empty'}")
        if "cleanup_policies" in paths:
            check_policies(request.repository.cleanup_policies)

        def edit(repository: ar.Repository) -> None:
            for path in paths:
                if path == "cleanup_policies":
                    _set_policies(repository, request.repository.cleanup_policies)
                else:
                    setattr(repository, path, getattr(request.repository, path))
            repository.update_time = datetime.now(UTC)

        changed = self._book.change(name, edit)
        self._on_policies()
        return changed

    def delete_repository(self, request: ar.DeleteRepositoryRequest) -> operations_pb2.Operation:
        """Delete a repository with all that it holds; the operation is done at once."""
        from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]

        name = self._checked(_REPOSITORY, request.name)
        self._book.get(name)
        # An index goes before its children: a registry may refuse the other way round.
        for version in sorted(self._shelves.versions(name), key=lambda each: not each.children):
            self._shelves.delete(name, version)
        self._book.remove(name)
        return self._done(name.rpartition("/repositories/")[0], Empty())

    def list_docker_images(
        self, request: ar.ListDockerImagesRequest
    ) -> ar.ListDockerImagesResponse:
        """The versions in a repository, by image and digest, in pages."""
        from google.cloud import artifactregistry_v1 as ar

        _refuse_options(request)
        images = self._images(request.parent)
        page, token = _page(images, lambda each: each.name, request.page_size, request.page_token)
        return ar.ListDockerImagesResponse(docker_images=page, next_page_token=token)

    def get_docker_image(self, request: ar.GetDockerImageRequest) -> ar.DockerImage:
        """One version, by ``…/dockerImages/NAME@sha256:…`` or ``…/dockerImages/NAME:TAG``."""
        parent, _, wanted = request.name.partition("/dockerImages/")
        package, _, tag = wanted.rpartition(":")
        for image in self._images(parent):
            own = image.name.rpartition("/")[2]
            if own == wanted or (own.partition("@")[0] == package and tag in image.tags):
                return image
        raise Refused("NOT_FOUND", f"Requested entity was not found: {request.name}")

    def get_operation(
        self, request: operations_pb2.GetOperationRequest
    ) -> operations_pb2.Operation:
        """An operation of this process, or NOT_FOUND."""
        if request.name not in self._operations:
            raise Refused("NOT_FOUND", f"Requested entity was not found: {request.name}")
        return self._operations[request.name]

    def _images(self, name: str) -> list[ar.DockerImage]:
        self._book.get(self._checked(_REPOSITORY, name))
        return [_image(name, self._uri(name), each) for each in self._shelves.versions(name)]

    def _checked(self, shape: re.Pattern[str], name: str) -> str:
        match = shape.fullmatch(name)
        if match is None:
            raise Refused("INVALID_ARGUMENT", f"invalid resource name {name!r}")
        if match[1] != self._project:
            raise Refused("PERMISSION_DENIED", f"no access to project {match[1]!r}")
        if match[2] not in self._shelves.registries:
            raise Refused("NOT_FOUND", f"location {match[2]!r} was not found")
        return name

    def _uri(self, name: str) -> str:
        project, region, repository = split_name(name)
        return f"{self._shelves.registries[region].host}/{project}/{repository}"

    def _done(self, parent: str, response: Any) -> operations_pb2.Operation:
        from google.longrunning import operations_pb2

        operation = operations_pb2.Operation(name=f"{parent}/operations/{uuid.uuid4()}", done=True)
        operation.response.Pack(response)
        self._operations[operation.name] = operation
        return operation


def handlers(service: ArtifactRegistryService) -> tuple[grpc.GenericRpcHandler, ...]:
    """What a gRPC server needs to serve ``service``."""
    import grpc
    from google.cloud import artifactregistry_v1 as ar
    from google.longrunning import operations_pb2 as lro

    operation = lro.Operation.SerializeToString
    methods = (
        (service.get_repository, ar.GetRepositoryRequest, ar.Repository.serialize),
        (
            service.list_repositories,
            ar.ListRepositoriesRequest,
            ar.ListRepositoriesResponse.serialize,
        ),
        (service.create_repository, ar.CreateRepositoryRequest, operation),
        (service.update_repository, ar.UpdateRepositoryRequest, ar.Repository.serialize),
        (service.delete_repository, ar.DeleteRepositoryRequest, operation),
        (
            service.list_docker_images,
            ar.ListDockerImagesRequest,
            ar.ListDockerImagesResponse.serialize,
        ),
        (service.get_docker_image, ar.GetDockerImageRequest, ar.DockerImage.serialize),
    )
    served = {
        request.__name__.removesuffix("Request"): _handler(method, request.deserialize, serialize)
        for method, request, serialize in methods
    }
    polled = _handler(service.get_operation, lro.GetOperationRequest.FromString, operation)
    return (
        grpc.method_handlers_generic_handler(SERVICE, served),
        grpc.method_handlers_generic_handler(OPERATIONS, {"GetOperation": polled}),
    )


def _handler(
    method: Callable[[Any], Any], deserialize: Callable[[bytes], Any], serialize: Callable[..., Any]
) -> grpc.RpcMethodHandler:
    import grpc

    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(request)
        except Refused as refused:
            context.abort(grpc.StatusCode[refused.code], str(refused))

    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=deserialize, response_serializer=serialize
    )


def _set_policies(repository: ar.Repository, policies: Mapping[str, ar.CleanupPolicy]) -> None:
    from google.cloud import artifactregistry_v1 as ar

    check_policies(policies)
    whole = {key: ar.CleanupPolicy(policy) for key, policy in policies.items()}
    for key, policy in whole.items():
        policy.id = key
    repository.cleanup_policies = whole


def _refuse_options(request: Any) -> None:
    for option in ("filter", "order_by"):
        if getattr(request, option, ""):
            raise Refused("UNIMPLEMENTED", f"the sandbox has no {option} here")


def _page(
    items: Sequence[T], name: Callable[[T], str], size: int, token: str
) -> tuple[list[T], str]:
    """One page, and the next one's token: the last name given, so that deletions do no harm."""
    if size < 0:
        raise Refused("INVALID_ARGUMENT", "page_size is negative")
    left = [item for item in sorted(items, key=name) if name(item) > token]
    page = left[: min(size or DEFAULT_PAGE, MAX_PAGE)]
    return page, name(page[-1]) if len(page) < len(left) else ""


def _image(parent: str, uri: str, version: Version) -> ar.DockerImage:
    from google.cloud import artifactregistry_v1 as ar

    return ar.DockerImage(
        name=f"{parent}/dockerImages/{quote(version.package, safe='')}@{version.digest}",
        uri=f"{uri}/{version.package}@{version.digest}",
        tags=list(version.tags),
        image_size_bytes=version.size_bytes,
        upload_time=version.uploaded,
        media_type=version.media_type,
        image_manifests=[ar.ImageManifest(digest=digest) for digest in version.children],
    )
