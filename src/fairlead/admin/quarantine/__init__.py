"""The quarantine: stored bytes that cannot be decoded, kept until somebody decides."""
