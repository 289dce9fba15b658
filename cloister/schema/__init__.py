"""What is declared: attributes, domains and spec files; reading, validation and encoding."""
