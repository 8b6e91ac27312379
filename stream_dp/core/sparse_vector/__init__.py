"""Mechanisms that predict answers and test the predictions by the sparse vector technique."""
