"""The Docker engine that builds and gives images: the only module here that talks to it."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfleet.errors import PrerequisiteMissing, ToolFailed
from rayfleet.image.build.builder import Builder, find_builder
from rayfleet.process import run

if TYPE_CHECKING:
    from docker import DockerClient

    from rayfleet.image.layers.collect import LocalImage
    from rayfleet.image.plan import BuildPlan

DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
BUILD_SECONDS = 3600.0
# The engine is silent while it makes an export ready.
SILENCE_SECONDS = 600
SHOWN_COLUMNS = 100
EXPORT_CHUNK = 1 << 20
# https://docs.docker.com/engine/storage/containerd/
CONTAINERD_STORE = ("driver-type", "io.containerd.snapshotter.v1")

# "#7 [packages 2/4] RUN ..." of BuildKit and "Step 3/9 : RUN ..." of the classic builder.
_STEP = re.compile(r"^(#\d+ \[(?!internal)|Step \d+/\d+ )")


class ImageEngine:
    """The engine at DOCKER_HOST or the default socket. Safe to use from several threads.

    ``next_step`` is what to run when it cannot be reached.
    """

    def __init__(
        self,
        *,
        env: Mapping[str, str] | None = None,
        next_step: str = "invoke doctor",
        silence: int = SILENCE_SECONDS,
    ) -> None:
        self._env = dict(os.environ if env is None else env)
        self._next_step = next_step
        self._silence = silence
        self.address = self._env.get("DOCKER_HOST") or DEFAULT_ADDRESS

    def check(self) -> None:
        """Return if the engine answers.

        Raises:
            PrerequisiteMissing: it does not.
        """
        with self._errors("does not answer"):
            self._client.ping()

    def has_image(self, name: str) -> bool:
        """True when the engine has the image and need not pull it."""
        from docker.errors import ImageNotFound

        with self._errors(f"cannot look up {name}"):
            try:
                self._client.images.get(name)
            except ImageNotFound:
                return False
            return True

    def look_up(self, name: str) -> LocalImage:
        """The image behind a name or ID of the engine.

        Raises:
            ToolFailed: the engine has no such image.
        """
        from rayfleet.image.layers.collect import LocalImage

        with self._errors(f"cannot look up {name}"):
            found = self._client.api.inspect_image(name)  # type: ignore[no-untyped-call]
        return LocalImage(
            id=found["Id"],
            diff_ids=tuple(found["RootFS"].get("Layers") or ()),
            size=found["Size"],
            architecture=found["Architecture"],
            os=found["Os"],
        )

    def store_root(self) -> Path | None:
        """The engine's own folder if it runs here and keeps its layers the classic way.

        None for an engine behind TCP or SSH, another driver than overlay2, the containerd store
        (the default of new engines since Docker 29), and a folder that may not be read: their
        images are exported.
        """
        if not self.address.startswith("unix://"):
            return None
        with self._errors("does not describe itself"):
            found = self._client.api.info()
        layers = Path(found.get("DockerRootDir", "")) / "image" / "overlay2"
        if not has_overlay_store(found) or not os.access(layers, os.R_OK | os.X_OK):
            return None
        return layers.parent.parent

    def export(self, image_id: str) -> Iterator[bytes]:
        """The archive that ``docker save`` writes, in chunks; close the iterator to give up.

        Raises:
            ToolFailed: the engine has no such image, or cannot read it.
            PrerequisiteMissing: it stopped answering.
        """
        from docker.errors import create_api_error_from_http_exception
        from requests.exceptions import HTTPError

        with self._errors(f"cannot export {image_id}"):
            api = self._client.api
            # Not api.get_image, whose connection stays open when the reader gives up.
            url = f"{api.base_url}/v{api.api_version}/images/{image_id}/get"
            with api.get(url, stream=True, timeout=self._silence) as response:
                try:
                    response.raise_for_status()
                except HTTPError as error:
                    create_api_error_from_http_exception(error)
                yield from response.iter_content(EXPORT_CHUNK)

    def find_builder(self) -> Builder:
        """The docker client that builds best on this machine."""
        return find_builder(self._env)

    def build(
        self, plan: BuildPlan, context: Path, *, log: Path, on_step: Callable[[str], None]
    ) -> str:
        """Build ``plan`` in the folder ``context``; return the image's ID.

        ``log`` gets the whole output, ``on_step`` one line per step. The image is kept under
        the plan's local name.

        Raises:
            ToolFailed: the build failed; its last lines are in the message.
        """
        builder = self.find_builder()
        builder.refuse_unsupported(context / plan.dockerfile)
        # A name that no other build has: a killed run may have left one that still goes on.
        id_file = context.parent / f"image-{secrets.token_hex(4)}"
        log.unlink(missing_ok=True)
        finished = run(
            builder.command(plan, context, id_file, env=self._env),
            timeout=BUILD_SECONDS,
            env=builder.environment(self._env, engine=self.address),
            log=log,
            on_line=lambda line: on_step(_shortened(line)) if _STEP.match(line) else None,
        )
        if not finished.ok:
            raise ToolFailed(
                f"the build of image {plan.family!r} failed (exit {finished.code})",
                why="\n    ".join(["its last lines:", *finished.tail]),
                next_step=f"mend {plan.dockerfile} (whole output: {log}), then run: {plan.command}",
            )
        image = id_file.read_text().strip()
        for tag in (plan.pin_tag, "latest"):
            self.tag(image, plan.local_repository, tag)
        return image

    def tag(self, image: str, repository: str, tag: str) -> None:
        """Give ``image`` (an ID) the name ``repository:tag`` in the engine."""
        with self._errors(f"cannot tag {repository}:{tag}"):
            self._client.api.tag(image, repository, tag)

    @cached_property
    def _client(self) -> DockerClient:
        from docker import from_env

        return from_env(
            timeout=self._silence, environment={**self._env, "DOCKER_HOST": self.address}
        )

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn the SDK's errors into ours."""
        from docker.errors import APIError, DockerException
        from requests.exceptions import RequestException

        try:
            yield
        except APIError as error:
            raise ToolFailed(
                f"the Docker engine {what}", why=str(error.explanation or error)
            ) from error
        except (DockerException, RequestException) as error:
            raise PrerequisiteMissing(
                f"no Docker engine answers at {self.address}",
                why=_innermost(error),
                next_step=self._next_step,
            ) from error


def has_overlay_store(info: Mapping[str, Any]) -> bool:
    """Whether an engine with this ``docker info`` keeps its layers in overlay2's folders.

    An engine with the containerd store says so in its driver's status, whatever the driver is
    called; folders of before its upgrade may still lie where they were.
    """
    status = [tuple(each) for each in info.get("DriverStatus") or ()]
    return info.get("Driver") == "overlay2" and CONTAINERD_STORE not in status


def _shortened(line: str) -> str:
    words = " ".join(line.split())
    return words if len(words) <= SHOWN_COLUMNS else f"{words[: SHOWN_COLUMNS - 1]}…"


def _innermost(error: BaseException) -> str:
    while error.__context__ is not None:
        error = error.__context__
    return getattr(error, "strerror", None) or str(error)
