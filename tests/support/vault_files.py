"""The files of a vault, judged without the code that wrote them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

SMALL_BYTES = 4 * 1024**2


def sound_backups(vault: Path) -> list[str]:
    """The ids of the backups in the folder ``vault``, every one proved to be whole.

    Each document has the hash that its name ends with, each package that it names is there and
    has the hash that is its own name, and nobody but the owner may read any of it.
    """
    for path in [vault, *vault.rglob("*")]:
        mode = path.stat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path}: {mode:o}"
    found = []
    for path in sorted((vault / "backups").glob("*")):
        content = path.read_bytes()
        assert path.suffix == ".json", path
        assert path.stem.endswith("-" + hashlib.sha256(content).hexdigest()[:10]), path
        for package in json.loads(content)["packages"]:
            stored = (vault / "packages" / package["sha256"]).read_bytes()
            assert hashlib.sha256(stored).hexdigest() == package["sha256"], path
            assert len(stored) == package["size"], path
        found.append(path.stem)
    return found


def files_with(folder: Path, secret: str, *, without: Path) -> list[Path]:
    """The files below ``folder``, but not below ``without``, that hold ``secret``.

    Larger ones than 4 MiB are layers of images and are not looked at.
    """
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    small = (path for path in paths if path.stat().st_size < SMALL_BYTES)
    outside = (path for path in small if not path.is_relative_to(without))
    return [path for path in outside if secret.encode() in path.read_bytes()]
