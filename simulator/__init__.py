"""tilecast: a hardware simulator and performance model for AI accelerators."""
