"""The folder that a build sees: the family's files as git knows them, and ``build-config/``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rayfleet.errors import PrerequisiteMissing, UsageError
from rayfleet.image import machine

BUILD_CONFIG = "build-config"
# One time for every file, so that equal content makes equal layers: 2020-01-01 00:00 UTC.
MTIME = 1_577_836_800


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildConfig:
    """What the build stage, and no stage after it, gets to know of this machine.

    ``bundle`` is a CA bundle in PEM, empty for none. ``env`` is a shell file; it may hold
    passwords of a package index.
    """

    bundle: bytes = b""
    env: str = field(default="", repr=False)


REPOSITORIES = ("GCSFUSE_REPOSITORY",)
"""Variables with the addresses of package repositories that only some images need."""


def machine_build_config(env: Mapping[str, str]) -> BuildConfig:
    """The build configuration that this machine and its environment ask for."""
    pip = machine.read_pip_settings(env)
    bundle = machine.ca_bundle(env, pip_cert=pip.get("cert", ""))
    settings = machine.build_environment(pip, has_bundle=bundle is not None)
    # No address of a package repository is written into a Dockerfile.
    settings |= {name: env[name] for name in REPOSITORIES if env.get(name)}
    return BuildConfig(
        bundle=b"" if bundle is None else bundle.read_bytes(),
        env=machine.shell_exports(settings),
    )


@contextmanager
def exported_context(
    root: Path, files: Sequence[str], config: BuildConfig, *, folder: Path, prefix: str = ""
) -> Iterator[Path]:
    """Copy ``files`` of ``root`` and ``build-config/`` into ``context/prefix`` of ``folder``.

    Yields that path. ``folder`` is the build's own place: it goes away with the block, and
    whatever a killed run left in it is removed first. Modes become git's (0644 and
    0755), times one fixed time.

    Raises:
        PrerequisiteMissing: the copy cannot be written, for example because the disk is full.
        UsageError: the files already hold a ``build-config``.
    """
    if any(Path(name).parts[0] == BUILD_CONFIG for name in files):
        raise UsageError(
            f"the build context has a {BUILD_CONFIG}", why="the build puts its own there"
        )
    context = folder / "context" / prefix
    try:
        _remove(folder)
        try:
            folder.mkdir(parents=True, mode=0o700)
            for name in files:
                _copy(root / name, context / name)
            _write_config(context / BUILD_CONFIG, config)
            _set_folders(context)
        except OSError as error:
            raise PrerequisiteMissing(
                f"cannot copy the build context to {folder}",
                why=f"{error.filename or root}: {error.strerror or error}",
                next_step="free space or mend the permissions, then run the same command again",
            ) from error
        yield context
    finally:
        _remove(folder)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target, follow_symlinks=False)
    if not target.is_symlink():
        target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
    os.utime(target, (MTIME, MTIME), follow_symlinks=False)


def _write_config(folder: Path, config: BuildConfig) -> None:
    folder.mkdir(mode=0o700)
    for name, content in (
        ("ca-certificates.crt", config.bundle),
        ("env", config.env.encode(errors="surrogateescape")),
    ):
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        os.utime(path, (MTIME, MTIME))


def _set_folders(context: Path) -> None:
    for path, _, _ in os.walk(context):
        Path(path).chmod(0o755)
        os.utime(path, (MTIME, MTIME))


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
