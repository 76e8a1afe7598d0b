"""Supervised fine-tuning and distillation."""
