"""How good a reward model is: accuracy, calibration, what else it reads, best-of-n."""
