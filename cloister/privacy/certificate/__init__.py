"""The certificate of a release, its wording and its page, and the manifest beside it."""
