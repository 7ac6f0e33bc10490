"""The one parser of endpoints: what it accepts, what it means, and the sentence for what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.utils.endpoints import Endpoint, parse_endpoints


def parse(text: str) -> list[tuple[str, str, int]]:
    return [(e.scheme, e.host, e.port) for e in parse_endpoints(text, default_port=2379)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", ("etcd", "localhost", 2379)),
        ("localhost:1", ("etcd", "localhost", 1)),
        ("a-b_c.example.:65535", ("etcd", "a-b_c.example.", 65535)),
        ("10.0.0.1:2379", ("etcd", "10.0.0.1", 2379)),
        ("etcd://h:1", ("etcd", "h", 1)),
        ("http://h", ("http", "h", 2379)),
        ("HTTPS://h:2/", ("https", "h", 2)),
        ("::1", ("etcd", "::1", 2379)),
        ("[::1]", ("etcd", "::1", 2379)),
        ("[::1]:99", ("etcd", "::1", 99)),
        ("2001:DB8::5", ("etcd", "2001:db8::5", 2379)),
        ("fe80::1%eth0", ("etcd", "fe80::1%eth0", 2379)),
        ("https://[fe80::1%eth0.1]:7", ("https", "fe80::1%eth0.1", 7)),
        ("[::ffff:10.0.0.1]:7", ("etcd", "::ffff:10.0.0.1", 7)),
        (" h:1 ", ("etcd", "h", 1)),
    ],
)
def test_one_endpoint(text: str, expected: tuple[str, str, int]) -> None:
    assert parse(text) == [expected]


def test_a_list_keeps_its_order_and_drops_repetitions() -> None:
    assert parse("b:1, a:2 ,b:1,[::1]:3") == [("etcd", "b", 1), ("etcd", "a", 2), ("etcd", "::1", 3)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "a:1,",
        ",a:1",
        "a:",
        "a:0",
        "a:99999",
        "a:abc",
        "a:-1",
        "a:+1",
        "a:1 2",
        "a:²",
        ":2379",
        "http://",
        "http://:1",
        "ftp://a:1",
        "http://a/path",
        "user@a:1",
        "a b:1",
        "-a:1",
        "a..b:1",
        "[::1",
        "::1]:2",
        "[::1]x",
        "[::1]2379",
        "[a]:1",
        "[]:1",
        "1:2:3",
        "::1::2",
        "fe80::1%:1%x y",
        "1.2.3",
        "1.2.3.999:1",
        "a" * 64 + ":1",
        "http://http://a:1",
    ],
)
def test_anything_else_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="endpoint") as caught:
        parse_endpoints(text, default_port=2379)
    assert "\n" not in str(caught.value)
    # The value is named, so that the user finds it on a long command line.
    if text.strip(" ,"):
        assert any(part.strip() in str(caught.value) for part in text.split(",") if part.strip())


def test_only_https_is_secure() -> None:
    assert [e.secure for e in parse_endpoints("https://a,http://b,c", default_port=1)] == [True, False, False]


@given(
    host=st.one_of(
        st.ip_addresses(v=4).map(str),
        st.ip_addresses(v=6).map(str),
        st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9](\.[a-z][a-z0-9]{0,9})?", fullmatch=True),
    ),
    port=st.integers(1, 65535),
)
def test_text_and_back(host: str, port: int) -> None:
    endpoint = Endpoint("etcd", host, port)
    assert parse_endpoints(str(endpoint), default_port=1) == (endpoint,)


@given(st.text(max_size=30))
def test_any_text_gives_endpoints_or_a_value_error(text: str) -> None:
    try:
        endpoints = parse_endpoints(text, default_port=2379)
    except ValueError:
        return
    assert endpoints
    assert all(e.host and 0 < e.port < 65536 for e in endpoints)
