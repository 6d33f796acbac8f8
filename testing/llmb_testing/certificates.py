# SPDX-License-Identifier: Apache-2.0
"""A self-signed certificate for 127.0.0.1 and localhost, made with openssl."""

import base64
import socket
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from llmb.core import shell
from llmb.errors import LlmbError


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A private key and its certificate, as PEM files."""

    key: Path
    path: Path

    def sign(self, content: bytes) -> bytes:
        """Return the RSA signature (SHA-256) of ``content``."""
        with tempfile.TemporaryDirectory() as folder:
            text, signature = Path(folder) / "text", Path(folder) / "signature"
            text.write_bytes(content)
            _openssl("dgst", "-sha256", "-sign", str(self.key), "-out", str(signature), str(text))
            return signature.read_bytes()

    def wrap(self, listening: socket.socket) -> ssl.SSLSocket:
        """Return a server socket with TLS. Each connection's thread does its handshake."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path, self.key)
        return context.wrap_socket(listening, server_side=True, do_handshake_on_connect=False)

    @property
    def der(self) -> str:
        """The certificate in the form that tokens contain: base64 of its DER form."""
        lines = self.path.read_text().splitlines()
        return base64.b64encode(
            base64.b64decode("".join(line for line in lines if "-----" not in line))
        ).decode()


def make_certificate(folder: Path) -> Certificate:
    """Write both files to ``folder``. Raises LlmbError if openssl fails."""
    certificate = Certificate(key=folder / "key.pem", path=folder / "certificate.pem")
    _openssl(
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=llmb test registry",
        "-addext",
        "subjectAltName=IP:127.0.0.1,DNS:localhost",
        "-addext",
        "keyUsage=critical,digitalSignature,keyCertSign",
        "-keyout",
        str(certificate.key),
        "-out",
        str(certificate.path),
    )
    return certificate


def _openssl(*arguments: str) -> None:
    process = shell.run(["openssl", *arguments])
    if process.code:
        raise LlmbError(f"openssl {arguments[0]} failed: {process.err.strip()}")
