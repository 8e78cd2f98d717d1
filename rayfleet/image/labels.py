"""The labels of an image, by the keys of the OCI image specification.

https://github.com/opencontainers/image-spec/blob/v1.1.0/annotations.md
"""

TITLE = "org.opencontainers.image.title"
VERSION = "org.opencontainers.image.version"
REVISION = "org.opencontainers.image.revision"
BASE = "org.opencontainers.image.base.name"
CREATED = "org.opencontainers.image.created"
