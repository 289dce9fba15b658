"""The declared world: attributes and public domains, spec files, reading, validation, encoding."""
