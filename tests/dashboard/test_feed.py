"""Messages to open pages: in order, bounded, and a page that falls behind starts anew."""

from __future__ import annotations

import json

import pytest

from edl.dashboard.feed import Feed, TooManyClientsError, encoded


async def test_every_open_page_gets_every_message_in_order() -> None:
    feed = Feed()
    with feed.opened() as one, feed.opened() as other:
        feed.send("a", 1)
        feed.send("b", 2)
        for client in (one, other):
            assert [await client.next(1.0), await client.next(1.0)] == [encoded("a", 1), encoded("b", 2)]


async def test_a_page_without_news_gets_a_heartbeat() -> None:
    with Feed().opened() as client:
        assert await client.next(0.001) == b""


async def test_a_page_that_falls_behind_holds_no_memory_and_starts_anew() -> None:
    feed = Feed(backlog=3)
    with feed.opened() as client:
        for number in range(1000):
            feed.send("a", number)
        assert len(client._messages) <= 3
        assert await client.next(1.0) is None
        client.clear()
        feed.send("a", 7)
        assert await client.next(1.0) == encoded("a", 7)


async def test_more_pages_than_allowed_are_refused_until_one_closes() -> None:
    feed = Feed(clients=1)
    with feed.opened(), pytest.raises(TooManyClientsError, match="close one and reload"), feed.opened():
        pass
    assert not feed.is_watched
    with feed.opened():
        assert feed.is_watched


async def test_closing_the_feed_wakes_every_page() -> None:
    feed = Feed()
    with feed.opened() as client:
        feed.close()
        assert await client.next(60.0) == b""
        assert client.is_closed


def test_a_message_is_one_line_of_data_whatever_the_text() -> None:
    lines = encoded("x", "a\nb\r\n\u2028data: y").decode().split("\n")
    assert lines[0] == "event: x"
    assert json.loads(lines[1].removeprefix("data: ")) == "a\nb\r\n\u2028data: y"
    assert lines[2:] == ["", ""]
