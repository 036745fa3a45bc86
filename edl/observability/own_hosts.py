"""Tells requests that a browser sends to this server itself from those that a web site sends in the user's name.

A web site can give its own name the address 127.0.0.1 and then read what is served there (DNS rebinding). The browser
still sends the name of the site as the Host. So a request that comes over loopback must name an address or localhost.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from aiohttp import web


def foreign(request: web.BaseRequest) -> str:
    """Why a request is not meant for this server; empty if it may be.

    A request over another interface may carry any Host, because names of Services and of proxies lead there.
    """
    host, origin = request.headers.get("Host", ""), request.headers.get("Origin", "")
    if origin and urlsplit(origin).netloc != host:
        return "another site sent this request; open this address itself"
    if _came_over_loopback(request) and not is_own(host_of(host)):
        return f"the Host {host[:100]!r} is no address of this machine; open this address at 127.0.0.1 or localhost"
    return ""


def _came_over_loopback(request: web.BaseRequest) -> bool:
    end = request.get_extra_info("sockname")
    return isinstance(end, tuple) and is_loopback(str(end[0]).partition("%")[0])


def host_of(host: str) -> str:
    """The name of a Host header without its port and without the brackets of an IPv6 address."""
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower()


def is_own(host: str) -> bool:
    """True for localhost and for every IP address, to which no web site can point a name of its own."""
    try:
        return host == "localhost" or bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """True for localhost and for the loopback addresses."""
    try:
        address = None if host == "localhost" else ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address is None or (mapped or address).is_loopback
