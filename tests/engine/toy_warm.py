"""Imported once by the server of `toy_command`: what every run needs, so that its forks need not."""

from contextlib import suppress

import rich.progress
import torch.distributed.fsdp
import transformers.models.auto.modeling_auto
import transformers.models.gpt2.modeling_gpt2
import transformers.models.llama.modeling_llama
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

import plaudit.cli.main
import plaudit.engine.sinks.console
import plaudit.methods.iterative.run
import plaudit.methods.policy.run
import plaudit.methods.preference.run
import plaudit.methods.reward_model.run
import plaudit.methods.supervised.run

# Whoever trains no adapters needs none of it.
with suppress(ImportError):
    import peft.tuners.lora  # noqa: F401

WARMED = (plaudit, rich, torch, transformers)

get_checkpoint_conversion_mapping("llama")
