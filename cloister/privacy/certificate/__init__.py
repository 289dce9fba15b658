"""What a release is certified to be: the certificate, its wording, its page, and the manifest beside it."""
