"""The answers of the calibrated profile, made of what is published."""
