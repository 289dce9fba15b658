"""Random sources as version 0.1 imported them: its models in MLflow import one from here."""

from cloister.privacy.mechanisms.randomness import SamplingSource

__all__ = ["SamplingSource"]
