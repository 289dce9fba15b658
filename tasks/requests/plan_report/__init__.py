"""What a plan says beside its stages: time and memory, device, soft constraints, warnings."""
