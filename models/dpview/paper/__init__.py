"""DPView as its paper prints it, where the default does otherwise."""
