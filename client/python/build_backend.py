"""Builds the wheel of the package beside it (PEP 517, editable: PEP 660) with the standard library
only, so that `pip install` works on machines that reach no package index."""
import base64
import hashlib
import io
import os
import re
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "tunerd"
METADATA = """Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: {description}
License: MIT
Requires-Python: {requires-python}
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: {name} {version}\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same files give the same wheel


def project():
    """Name, version and so on, as pyproject.toml has them. (Python 3.11 is the first that reads TOML.)"""
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        return dict(re.findall(r'^([\w-]+) = "([^"]*)"$', file.read(), re.MULTILINE))


def sources():
    """(name in the archive, bytes) of the package's files."""
    folder = os.path.join(HERE, PACKAGE)
    for name in sorted(os.listdir(folder)):
        if name.endswith((".py", ".typed")):
            with open(os.path.join(folder, name), "rb") as file:
                yield "%s/%s" % (PACKAGE, name), file.read()


def write_wheel(folder, files):
    about = project()
    stem = "%(name)s-%(version)s" % about
    info = stem + ".dist-info/"
    files = list(files) + [(info + "METADATA", METADATA.format(**about).encode()),
                           (info + "WHEEL", WHEEL.format(**about).encode())]
    record = ""
    wheel = stem + "-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += "%s,sha256=%s,%d\n" % (name, digest, len(data))
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
        record += info + "RECORD,,\n"
        archive.writestr(zipfile.ZipInfo(info + "RECORD", EPOCH), record)
    return wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, sources())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, [("%s.pth" % PACKAGE, (HERE + "\n").encode())])


def build_sdist(sdist_directory, config_settings=None):
    about = project()
    stem = "%(name)s-%(version)s" % about
    files = list(sources()) + [("PKG-INFO", METADATA.format(**about).encode())]
    for name in ("pyproject.toml", "build_backend.py"):
        with open(os.path.join(HERE, name), "rb") as file:
            files.append((name, file.read()))
    archive = stem + ".tar.gz"
    with tarfile.open(os.path.join(sdist_directory, archive), "w:gz") as tar:
        for name, data in files:
            entry = tarfile.TarInfo("%s/%s" % (stem, name))
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return archive
