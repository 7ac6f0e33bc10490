"""What an address or a name says of where a machine is reached."""

from __future__ import annotations

import pytest

from elastic.utils.network import is_loopback, knows_itself_by_loopback


@pytest.mark.parametrize(
    ("host", "address", "alone", "by_name"),
    [
        ("node-1", "127.0.1.1", True, True),
        ("node-1", "192.0.2.7", False, False),
        ("localhost", "127.0.0.1", True, False),
        ("localhost.localdomain", "127.0.0.1", True, False),
        ("ip6-localhost", "::1", True, False),
        ("a.localhost", "::1", True, False),
        ("localhost-7", "127.0.1.1", True, True),
        ("127.0.0.2", "127.0.0.2", True, False),
        ("::1", "::1", True, False),
        ("node-1", "fe80::1%eth0", False, False),
    ],
)
def test_a_name_may_stand_for_the_loopback_on_its_own_machine(
    host: str, address: str, alone: bool, by_name: bool
) -> None:
    assert is_loopback(address) is alone
    assert knows_itself_by_loopback(host, address) is by_name
