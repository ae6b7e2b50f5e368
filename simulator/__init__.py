"""tilecast: a hardware simulator and performance model for AI accelerators."""

__version__ = "0.1.0"
