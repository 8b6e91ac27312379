"""The ways of answering of the calibrated profile: a module for each kind of promise that queries ask for."""
