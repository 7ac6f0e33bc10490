"""What a node is called, and what its id tells of that."""

from __future__ import annotations

import pytest

from elastic.rendezvous.naming import name_of, node_id_of


@pytest.mark.parametrize("name", ["a", "gpu-7", "rank0@my-host-1", "deadbeef-0a1b2c3d"])
@pytest.mark.parametrize("life", [0, 1, 2**32 - 1, 2**127 + 5])
def test_the_lives_of_a_node_share_its_name(name: str, life: int) -> None:
    assert name_of(node_id_of(name, life=life)) == name
    assert node_id_of(name, life=life) != node_id_of(name, life=life + 1)


@pytest.mark.parametrize("node_id", ["", "rank0@my-host-1", "a-0A1B2C3D", "a-0a1b2c3d4"])
def test_an_id_that_tells_no_life_is_the_name(node_id: str) -> None:
    assert name_of(node_id) == node_id
