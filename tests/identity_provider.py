"""An identity provider: keys, tokens that it signs, and an OpenID server over HTTPS that issues them."""

from __future__ import annotations

import json
import ssl
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from tests.certificates import TlsFiles, rsa_key

ISSUER = "https://woods.example"
AUDIENCE = "orders-log"
USER = "alice"
SECRET = "s3cret"
"""The password of every client of the provider."""

SigningKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
CURVES: dict[str, ec.EllipticCurve] = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def make_key(algorithm: str) -> SigningKey:
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key(CURVES[algorithm]) if algorithm in CURVES else rsa_key()


def public_jwk(key: SigningKey, **fields: Any) -> dict[str, Any]:
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        made = RSAAlgorithm.to_jwk(public, as_dict=True)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        made = ECAlgorithm.to_jwk(public, as_dict=True)
    else:
        made = OKPAlgorithm.to_jwk(public, as_dict=True)
    made.pop("key_ops", None)
    return {**made, **fields}


class Provider:
    """Keys with ids, the newest of which signs."""

    def __init__(self, algorithm: str = "ES256", clock: Callable[[], float] = time.time) -> None:
        self.algorithm = algorithm
        self.clock = clock
        self.keys: dict[str, SigningKey] = {}
        self.rotate()

    def rotate(self) -> str:
        """Signs by a new key from now on. The old ones stay known."""
        self.key_id = f"key-{len(self.keys) + 1}"
        self.keys[self.key_id] = make_key(self.algorithm)
        return self.key_id

    def key_set(self) -> bytes:
        keys = [public_jwk(key, kid=key_id, use="sig", alg=self.algorithm) for key_id, key in self.keys.items()]
        return json.dumps({"keys": keys}).encode()

    def claims(self, user: str = USER, lasts_s: float = 600, **more: Any) -> dict[str, Any]:
        """Claims as real providers have them; None leaves one out."""
        now_s = self.clock()
        all_of_them = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": user,
            "iat": now_s,
            "exp": now_s + lasts_s,
            "scope": "log.read log.write",
            **more,
        }
        return {name: value for name, value in all_of_them.items() if value is not None}

    def token(self, user: str = USER, lasts_s: float = 600, **more: Any) -> str:
        return self.sign(self.claims(user, lasts_s, **more))

    def sign(self, claims: dict[str, Any], *, key_id: str | None = None, **header: Any) -> str:
        signer = key_id or self.key_id
        signed = json.dumps(claims).encode()
        return jwt.PyJWS().encode(signed, self.keys[signer], self.algorithm, {"kid": signer, **header})


Respond = Callable[[BaseHTTPRequestHandler], None]


class OpenIdServer:
    """The HTTPS server of a provider: its keys at `/keys`, tokens for client credentials at `/token`."""

    def __init__(self, provider: Provider, tls: TlsFiles) -> None:
        self.provider = provider
        self.tls = tls
        self.key_requests = 0
        self.lasts_s = 600.0
        self.audience = AUDIENCE
        self.answer_keys: Respond = lambda request: send(request, 200, provider.key_set())
        """How the server answers who asks for the keys: a test changes it."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.key_requests += 1
                server.answer_keys(self)

            def do_POST(self) -> None:
                send(self, *server.issue(self))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.keystore)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"

    @property
    def authorities(self) -> Path:
        return self.tls.truststore

    def issue(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        """The token for a client, as RFC 6749 has it: user and password in a header, or in the form."""
        length = int(request.headers.get("Content-Length") or 0)
        form = {name: values[0] for name, values in parse_qs(request.rfile.read(length).decode()).items()}
        user, password = credentials(request.headers.get("Authorization", ""), form)
        if form.get("grant_type") != "client_credentials" or password != SECRET:
            return 401, b'{"error": "invalid_client"}'
        token = self.provider.token(user, self.lasts_s, aud=self.audience, scope=form.get("scope"))
        granted = {"access_token": token, "token_type": "Bearer", "expires_in": int(self.lasts_s)}
        return 200, json.dumps(granted).encode()

    def __enter__(self) -> OpenIdServer:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the server. May be called again."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def credentials(header: str, form: dict[str, str]) -> tuple[str, str]:
    kind, _, text = header.partition(" ")
    if kind.lower() == "basic":
        user, _, password = b64decode(text).decode().partition(":")
        return user, password
    return form.get("client_id", ""), form.get("client_secret", "")


def send(request: BaseHTTPRequestHandler, status: int, content: bytes, **headers: str) -> None:
    request.send_response(status)
    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **headers}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(content)


@contextmanager
def open_id_server(tls: TlsFiles, algorithm: str = "ES256") -> Iterator[OpenIdServer]:
    with OpenIdServer(Provider(algorithm), tls) as server:
        yield server
