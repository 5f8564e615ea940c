"""Certificates for tests, made by OpenSSL without a network."""

import subprocess
from pathlib import Path

from antiphon.io.peers.security import Tls


class Authority:
    """An authority of its own, and certificates that it has signed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._certificate = folder / "authority.pem"
        self._key = folder / "authority.key"
        openssl(
            *("req", "-x509", "-subj", "/CN=test authority", "-days", "2"),
            *new_key(self._key),
            *("-out", self._certificate),
        )

    def issue(self, name: str) -> Tls:
        """Return a certificate in this name, with its key."""
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        if not certificate.exists():
            request = self._folder / f"{name}.csr"
            openssl("req", "-subj", f"/CN={name}", *new_key(key), "-out", request)
            openssl(
                *("x509", "-req", "-in", request, "-days", "2", "-out", certificate),
                *("-CA", self._certificate, "-CAkey", self._key, "-CAcreateserial"),
            )
        return Tls(str(certificate), str(key), str(self._certificate))


def new_key(path: Path) -> tuple[str | Path, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path)


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
