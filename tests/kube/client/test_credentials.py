"""What goes along when the token of a caller is checked."""

from __future__ import annotations

from kubernetes.aio.client import Configuration

from edl.kube.client.credentials import configuration_of_caller


async def test_a_caller_is_seen_by_its_token_and_never_by_the_certificate_of_this_process() -> None:
    own = Configuration(host="https://api:6443", api_key={"authorization": "Bearer own"}, verify_ssl=False)
    own.cert_file, own.key_file = "/client.crt", "/client.key"
    own.username, own.password = "admin", "secret"
    own.ssl_ca_cert, own.tls_server_name, own.proxy = "/ca.crt", "kubernetes", "http://proxy:3128"
    bare = configuration_of_caller(own, "callers")
    assert (await bare.auth_settings())["BearerToken"]["value"] == "Bearer callers"
    assert (bare.cert_file, bare.key_file, bare.username, bare.password) == (None, None, None, None)
    way = (bare.host, bare.ssl_ca_cert, bare.tls_server_name, bare.proxy, bare.verify_ssl)
    assert way == ("https://api:6443", "/ca.crt", "kubernetes", "http://proxy:3128", False)
