"""Addresses of the machine that the tests run on."""

from __future__ import annotations

import pytest

from elastic.utils.network import address_towards, is_loopback


def others_way() -> str:
    """The address by which other machines reach this one. Skips the test where there is none."""
    try:
        address = address_towards("192.0.2.1", 9)  # nobody has this one (RFC 5737)
    except OSError:
        pytest.skip("this machine has no way to others")
    if is_loopback(address):
        pytest.skip("this machine has no address but the loopback's")
    return address
