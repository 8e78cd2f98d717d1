"""Rules that the whole repository keeps."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rayfleet"
MAX_LINES = 350

# Who may import whom: a package may import what stands in a later row, and itself. Packages of
# one row know nothing of each other, save for what BESIDE allows. Everything that is not named
# (errors, console, process ...) is the floor: it may be used by all and uses none of these.
LAYERS = (
    ("__main__",),
    ("tasks",),
    ("sandbox", "emulator"),
    ("release",),
    ("doctor",),
    ("dashboard",),
    ("health", "auth"),
    ("rollout",),
    ("worker",),
    ("cluster", "job", "image", "registry", "log"),
    ("secret",),
    ("fleet",),
)
FLOOR = len(LAYERS)
BESIDE = {
    ("job", "cluster"),  # jobs are reached over a head's SSH connection
    ("log", "cluster"),  # and so are logs
    ("image", "registry"),  # publishing makes missing repositories
    ("registry", "image"),  # and the registries' inventory uses the same credentials
    ("cluster", "image"),  # a head logs in to its registry with the same credentials
}


def tracked() -> list[Path]:
    """The files that git knows of, or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in files if path.is_file()]


def sources(*folders: str) -> list[Path]:
    """The Python files below ``folders`` of the repository."""
    return sorted(chain.from_iterable((ROOT / folder).rglob("*.py") for folder in folders))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """The dotted modules that ``path`` imports anywhere, for types as well."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


def layer(package: str) -> int:
    """The row of LAYERS that ``package`` stands in."""
    return next((row for row, packages in enumerate(LAYERS) if package in packages), FLOOR)


def own_imports(path: Path) -> set[str]:
    """The packages and modules directly below rayfleet that ``path`` imports."""
    found = (name.split(".") for name in imports(path) if name.startswith("rayfleet."))
    return {parts[1] for parts in found} - {"__version__"}


def home(path: Path) -> str:
    """The package or module directly below rayfleet that ``path`` belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


# Put together here, so that this file keeps the rule itself.
FORBIDDEN = {
    "a folder of one machine": re.compile(
        r"(?<![\w.}])/(?:" + "|".join(("wo" + "rk", "ro" + "ot", "home/[a-z]")) + r")(?:/|\b)"
    ),
    "the host of a package index": re.compile("|".join((r"pypi\." + "org", "python" + "hosted"))),
    "a mock": re.compile("unittest" + r"(?:\.| import )" + "mock|monkeypatch.setattr\\(time"),
    "a note to oneself": re.compile("|".join(("TO" + "DO", "FIX" + "ME"))),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in tracked()
        if path.suffix not in {".lock", ".png"}
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if FORBIDDEN[what].search(line)
    ]
    assert found == []


LOCKS = tuple(
    ROOT / name
    for name in (
        "requirements.lock",
        "docker/requirements.lock",
        "docker/uv.lock",
        "docker/vllm.lock",
    )
)


def test_the_locks_name_no_index_and_no_folder() -> None:
    for lock in LOCKS:
        lines = [line for line in lock.read_text().splitlines() if re.search(r"://|^-|@ ", line)]
        assert lines == [], lock


def test_the_image_gets_the_versions_of_the_project() -> None:
    project, *others = (pins(lock) for lock in LOCKS)
    image, installer, serving = others
    assert {"ray", "docker", "google-api-python-client"} <= image.keys()
    assert installer.keys() == {"uv"}
    for lock in (image, installer):
        assert {name: lock[name] for name in lock if lock[name] != project.get(name)} == {}
    # What serves is the cluster image's, and vLLM; it is for Linux only.
    assert image.keys() - serving.keys() <= {"colorama", "pywin32"}
    assert {name for name in image.keys() & serving.keys() if image[name] != serving[name]} == set()
    assert "vllm-tpu" in serving


def test_what_an_image_installs_comes_from_a_lock() -> None:
    for dockerfile in (ROOT / "docker").glob("Dockerfile.*"):
        text = dockerfile.read_text().replace("\\\n", " ")
        installs = re.findall(r"pip install [^&]*", text)
        assert installs, dockerfile
        for install in installs:
            assert re.search(r"--require-hashes .*-r /build/[a-z]+\.lock", install), install


def test_every_pin_has_a_hash() -> None:
    for lock in LOCKS:
        blocks = re.split(r"^(?=[a-z])", lock.read_text(), flags=re.MULTILINE)[1:]
        assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []


def pins(lock: Path) -> dict[str, set[str]]:
    """The versions by name in a lock; a package may have one per marker."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)(?:\[\w+\])?==([^\s;]+)", lock.read_text(), re.M):
        found.setdefault(name, set()).add(version)
    return found


def test_git_ignores_no_source() -> None:
    assert set(sources("rayfleet", "scripts", "tests")) - set(tracked()) == set()


def test_no_module_is_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources("rayfleet")}
    assert {str(path): count for path, count in lengths.items() if count > MAX_LINES} == {}


def test_imports_point_down_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports rayfleet.{other}"
        for path in sources("rayfleet")
        for other in sorted(own_imports(path) - {home(path)})
        if ((home(path), other) not in BESIDE and layer(other) <= layer(home(path)) < FLOOR)
        or layer(other) < layer(home(path)) == FLOOR
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["sandbox", "emulator"])
def test_only_its_tasks_import(package: str) -> None:
    allowed = {PACKAGE / "tasks" / f"{package}.py", *(PACKAGE / package).rglob("*.py")}
    users = [path for path in sources("rayfleet") if package in own_imports(path)]
    assert set(users) - allowed - {PACKAGE / "tasks" / "__init__.py"} == set()


@pytest.mark.parametrize(
    ("library", "owners"),
    [
        ("fabric", {"cluster"}),
        ("docker", {"image", "sandbox"}),
        ("google", {"auth", "image", "registry", "sandbox"}),
        ("jinja2", {"fleet"}),
        ("rich", {"console", "bars", "log"}),
    ],
)
def test_a_tool_has_one_owner(library: str, owners: set[str]) -> None:
    users = {
        home(path)
        for path in sources("rayfleet")
        if any(name.partition(".")[0] == library for name in imports(path))
    }
    assert users - owners == set()


def test_heavy_libraries_are_imported_inside_functions_only() -> None:
    heavy = {"fabric", "docker", "google", "pydantic", "rich", "jinja2", "jsonschema", "urllib3"}
    heavy |= {"ray", "stamina", "grpc", "paramiko", "isal", "zstandard"}
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources("rayfleet")
        if "sandbox" not in path.parts
        for name in module_level_imports(path)
        if name.partition(".")[0] in heavy
    ]
    assert found == []


def module_level_imports(path: Path) -> Iterator[str]:
    """What importing ``path`` imports at once."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_scripts_are_sound_bash() -> None:
    scripts = [ROOT / ".ci/run", *(ROOT / "scripts").rglob("*.sh")]
    assert len(scripts) >= 4
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
        assert script.stat().st_mode & 0o111, f"{script} is not executable"
