"""What df prints."""

from __future__ import annotations

from rayfleet.health.room import parse_rooms

DF = """\
Welcome to this node
Filesystem     1024-blocks      Used Available Capacity Mounted on
/dev/root        202051056 181845952  20188720      91% /
/dev/root        202051056 181845952  20188720      91% /
tmpfs               524288         0    524288       0% /tmp
overlay                  -         -         -        - /somewhere
/dev/sdb1          1000000         0         0     100% /mnt/with a blank
"""


def test_each_disk_is_read_once() -> None:
    root, tmp, odd = parse_rooms(DF)
    assert (root.mount, root.free) == ("/", 20188720 * 1024)
    assert root.nearly_full
    assert round(root.used, 2) == 0.90
    assert (tmp.mount, tmp.nearly_full) == ("/tmp", False)
    assert (odd.mount, odd.size, odd.used) == ("/mnt/with a blank", 0, 0.0)


def test_nonsense_is_no_disk() -> None:
    assert parse_rooms("") == parse_rooms("df: no such command\n") == ()
