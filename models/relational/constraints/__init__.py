"""What must hold of references: rules across a key, keys of two references, no circles."""
