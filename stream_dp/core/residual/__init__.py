"""The calibrated profile: what it measures, how precisely, and what it concludes from residuals."""
