"""Other images of a sandbox, made in seconds: one more layer on what its clusters run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.sandbox import SandboxCli

GOOD = "LABEL rayfleet.e2e={word}"
# Ray itself does not start: the program is there, ends at once, and says why.
BAD = """\
USER root
RUN printf '#!/bin/sh\\necho "ray {word} does not start" >&2\\nexit 1\\n' > /opt/ray/bin/ray
USER ray"""


@contextmanager
def pinned_variant(cli: SandboxCli, word: str, lines: str) -> Iterator[str]:
    """Publish and pin an image with ``lines`` added to what is pinned, and write the configs.

    The value is its digest. The engine's own copy goes when the block ends, the pin stays.
    """
    name = f"rayfleet-e2e-{cli.place.id}:{word}"
    head = cli.engine.client.containers.get(cli.vms("us-central2-staging", "head")[0].name)
    base = head.attrs["Config"]["Image"]
    cli.engine.build_image(f"FROM {base}\n{lines.format(word=word)}\n", name)
    try:
        ran = cli("image.publish", "--ref", name, "--tag", f"e2e-{word}", "--json").must()
        cli("update-configs").must()
        yield str(ran.json()["digest"])
    finally:
        cli.engine.client.images.remove(name, force=True)
