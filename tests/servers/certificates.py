"""Certificates for tests: an authority of their own, and what it vouches for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.servers.packages import missing

KEY_PASSWORD: Final = "key's own secret"
_CURVE: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


class Authority:
    """Vouches for servers and clients."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            missing("no openssl on PATH to make test certificates with")
        self._folder = folder
        self.file, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        _openssl(
            *("req", "-x509", *_CURVE, "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", self._key, "-out", self.file),
        )

    def issue(self, name: str, *alternatives: str, encrypted: bool = False) -> tuple[Path, Path]:
        """The files of a certificate and its key, for these names: `DNS:host` or `IP:127.0.0.1`."""
        certificate, key, request, extensions = (self._folder / f"{name}.{end}" for end in ("pem", "key", "csr", "ext"))
        secrecy = ("-passout", f"pass:{KEY_PASSWORD}") if encrypted else ("-nodes",)
        _openssl("req", "-new", *_CURVE, *secrecy, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        extensions.write_text(f"subjectAltName={','.join(alternatives) or 'DNS:nobody'}\n")
        _openssl(
            *("x509", "-req", "-days", "2", "-in", request, "-extfile", extensions, "-out", certificate),
            *("-CA", self.file, "-CAkey", self._key, "-CAcreateserial"),
        )
        return certificate, key


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
