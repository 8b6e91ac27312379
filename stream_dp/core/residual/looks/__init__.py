"""The looks of the calibrated profile: what each measures, and its bytes."""
