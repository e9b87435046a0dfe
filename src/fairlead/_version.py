"""The version, read by the build and by the package; nothing else lives here."""

__version__ = "0.1.0"
