"""Certificates for tests of TLS."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """Create the certificate of an authority, a certificate it signed for 127.0.0.1, and its key."""
    folder.mkdir()
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer, subject = common_name("authority"), common_name("cluster")
    root = builder(issuer, issuer, authority, x509.BasicConstraints(ca=True, path_length=0))
    server = builder(subject, issuer, key, x509.BasicConstraints(ca=False, path_length=None))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    server = server.add_extension(address, critical=False)
    files = {
        "ca.pem": root.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        "cert.pem": server.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        "key.pem": key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    ca, cert, server_key = (folder / name for name in files)
    return ca, cert, server_key


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, constraints: x509.BasicConstraints
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(constraints, critical=True)
    )
